package notify

import (
	"fmt"
	"time"

	"github.com/wneessen/go-mail"
)

// A text is what a mail says in one language. The verbs are the order's id,
// what was paid and when.
type text struct{ subject, body string }

var orderPaidTexts = map[Locale]text{
	English: {
		subject: "We have received your payment for order %[1]s",
		body: `Thank you. Your payment has arrived.

Order:    %[1]s
Paid:     %[2]s
Received: %[3]s

You need not do anything. We will prepare your order now.
`,
	},
	Chinese: {
		subject: "我们已收到您的付款（订单 %[1]s）",
		body: `感谢您的购买，您的付款已到账。

订单号：%[1]s
金额：%[2]s
到账时间：%[3]s

您无需任何操作，我们正在为您备货。
`,
	},
	Japanese: {
		subject: "お支払いを確認しました（ご注文 %[1]s）",
		body: `ご注文ありがとうございます。お支払いを確認いたしました。

ご注文番号：%[1]s
お支払い金額：%[2]s
確認日時：%[3]s

お手続きは必要ありません。商品の準備を始めます。
`,
	},
}

// compose writes the mail of a task. Two mails of one task are the same to the
// last character of their headers, so that whoever gets both can tell.
//
// Nothing in it can become a header of its own: ids and currencies have been
// checked letter by letter, addresses have no room for a line break, and the
// library encodes what is left.
func compose(t Task, to Contact, from, messageID string) (*mail.Msg, error) {
	words, ok := orderPaidTexts[to.Locale]
	if !ok {
		words = orderPaidTexts[English]
	}
	paidAt := t.PaidAt.UTC().Format("2006-01-02 15:04 UTC")
	msg := mail.NewMsg(mail.WithNoDefaultUserAgent())
	if err := msg.From(from); err != nil {
		return nil, fmt.Errorf("compose mail %s: the sender's address cannot be used", t.ID)
	}
	if err := msg.To(to.Email); err != nil { // without the error's text: it quotes the address
		return nil, fmt.Errorf("compose mail %s: the address cannot be used", t.ID)
	}
	msg.Subject(fmt.Sprintf(words.subject, t.OrderID))
	msg.SetMessageIDWithValue(messageID)
	msg.SetDateWithValue(t.CreatedAt.UTC().Truncate(time.Second))
	msg.SetGenHeader("Auto-Submitted", "auto-generated")           // so that no holiday notice answers it (RFC 3834),
	msg.SetGenHeader("X-Auto-Response-Suppress", "OOF, AutoReply") // also from Exchange, which goes by a header of its own
	msg.SetGenHeader(mail.HeaderContentLang, string(to.Locale))
	msg.SetBodyString(mail.TypeTextPlain, fmt.Sprintf(words.body, t.OrderID, t.Total, paidAt))
	return msg, nil
}
