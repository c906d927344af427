// Package pgx has what Temporal's store in PostgreSQL names.
package pgx

import "errors"

type (
	Conn       struct{}
	ConnConfig struct{}
	typeMap    struct{}
)

func ParseConfig(string) (*ConnConfig, error) {
	return nil, errors.New("PostgreSQL is left out of this build")
}

func (*Conn) TypeMap() typeMap { return typeMap{} }

func (typeMap) RegisterDefaultPgType(any, string) {}
