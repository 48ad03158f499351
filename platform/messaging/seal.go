package messaging

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
)

// PayloadKeys seal the payloads that are kept in message_failure: they may hold
// personal data, and they outlive the event. A nil *PayloadKeys keeps them as
// they came.
type PayloadKeys struct {
	Current string            // the name of the key that new entries are sealed with
	Keys    map[string][]byte // all keys that old entries may need, by name; 32 bytes each
}

// errNoPayloadKey: the key that an entry was sealed with is not configured.
var errNoPayloadKey = errors.New("the key that this payload was sealed with is not configured")

// Check reports what is wrong with the keys, for a start that should fail early.
func (k *PayloadKeys) Check() error {
	if k == nil {
		return nil
	}
	for name, key := range k.Keys {
		if len(key) != 32 {
			return fmt.Errorf("payload key %q has %d bytes, AES-256 needs 32", name, len(key))
		}
	}
	if _, ok := k.Keys[k.Current]; !ok {
		return fmt.Errorf("the current payload key %q is not among the keys", k.Current)
	}
	return nil
}

// seal encrypts with AES-256-GCM under a random nonce, which is put in front.
// name is nil when nothing was sealed.
func (k *PayloadKeys) seal(payload []byte) (sealed []byte, name *string, err error) {
	if payload == nil {
		payload = []byte{} // an empty message is not an erased one
	}
	if k == nil {
		return payload, nil, nil
	}
	aead, err := k.aead(k.Current)
	if err != nil {
		return nil, nil, err
	}
	nonce := make([]byte, aead.NonceSize())
	rand.Read(nonce)
	return aead.Seal(nonce, nonce, payload, nil), &k.Current, nil
}

func (k *PayloadKeys) open(sealed []byte, name *string) ([]byte, error) {
	if name == nil {
		return sealed, nil
	}
	if k == nil {
		return nil, errNoPayloadKey
	}
	aead, err := k.aead(*name)
	if err != nil {
		return nil, err
	}
	if len(sealed) < aead.NonceSize() {
		return nil, errors.New("sealed payload is too short")
	}
	return aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], nil)
}

func (k *PayloadKeys) aead(name string) (cipher.AEAD, error) {
	key, ok := k.Keys[name]
	if !ok {
		return nil, errNoPayloadKey
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("payload key %q: %w", name, err)
	}
	return cipher.NewGCM(block)
}
