package stdlib

import (
	"context"
	"database/sql/driver"

	"github.com/jackc/pgx/v5"
)

type option struct{}

func OptionAfterConnect(func(context.Context, *pgx.Conn) error) option { return option{} }
func GetConnector(pgx.ConnConfig, ...option) driver.Connector          { return nil }
func GetDefaultDriver() driver.Driver                                  { return nil }
