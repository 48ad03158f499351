package order

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

var errNoProduct = errors.New("no such product")

// querier is what a read of the catalogue needs: a pool and a transaction are
// both one.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// A Product as the catalogue has it.
type Product struct {
	SKU    string
	Titles Titles
	Prices []Money // one for each currency in which it is sold, by code
}

const sqlProducts = `
SELECT p.sku, p.title_en, p.title_zh, p.title_ja,
       array_agg(c.currency ORDER BY c.currency), array_agg(c.amount ORDER BY c.currency)
  FROM (SELECT sku, title_en, title_zh, title_ja FROM product WHERE sku > $1 ORDER BY sku LIMIT $2) p
  JOIN product_price c ON c.sku = p.sku
 GROUP BY p.sku, p.title_en, p.title_zh, p.title_ja
 ORDER BY p.sku`

// listProducts returns up to limit products behind the sku after, which need
// not exist.
func listProducts(ctx context.Context, q querier, after string, limit int) ([]Product, error) {
	rows, _ := q.Query(ctx, sqlProducts, after, limit)
	products, err := pgx.CollectRows(rows, scanProduct)
	if err != nil {
		return nil, fmt.Errorf("list products: %w", err)
	}
	return products, nil
}

const sqlProduct = `
SELECT p.sku, p.title_en, p.title_zh, p.title_ja,
       array_agg(c.currency ORDER BY c.currency), array_agg(c.amount ORDER BY c.currency)
  FROM product p
  JOIN product_price c ON c.sku = p.sku
 WHERE p.sku = $1
 GROUP BY p.sku, p.title_en, p.title_zh, p.title_ja`

// findProduct returns one product, or errNoProduct.
func findProduct(ctx context.Context, q querier, sku string) (Product, error) {
	rows, _ := q.Query(ctx, sqlProduct, sku)
	p, err := pgx.CollectExactlyOneRow(rows, scanProduct)
	if errors.Is(err, pgx.ErrNoRows) {
		return Product{}, errNoProduct
	}
	if err != nil {
		return Product{}, fmt.Errorf("find product %s: %w", sku, err)
	}
	return p, nil
}

func scanProduct(row pgx.CollectableRow) (Product, error) {
	var p Product
	var currencies []string
	var amounts []int64
	if err := row.Scan(&p.SKU, &p.Titles.EN, &p.Titles.ZH, &p.Titles.JA, &currencies, &amounts); err != nil {
		return p, err
	}
	for i, currency := range currencies {
		p.Prices = append(p.Prices, Money{amounts[i], currency})
	}
	return p, nil
}

const sqlOffers = `
SELECT p.sku, p.title_en, p.title_zh, p.title_ja, c.amount
  FROM product p
  LEFT JOIN product_price c ON c.sku = p.sku AND c.currency = $2
 WHERE p.sku = ANY($1)`

// An offer is a product with its price in one currency, which is nil where it
// is not sold in that currency.
type offer struct {
	titles Titles
	amount *int64
}

// findOffers returns what the catalogue has of skus, by sku.
func findOffers(ctx context.Context, tx pgx.Tx, skus []string, currency string) (map[string]offer, error) {
	rows, _ := tx.Query(ctx, sqlOffers, skus, currency)
	offers := make(map[string]offer, len(skus))
	var sku string
	var o offer
	_, err := pgx.ForEachRow(rows, []any{&sku, &o.titles.EN, &o.titles.ZH, &o.titles.JA, &o.amount}, func() error {
		offers[sku] = o
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read prices: %w", err)
	}
	return offers, nil
}
