package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
)

// options are the flags of the Temporal CLI's `server start-dev` that this program understands, under the same names.
type options struct {
	ip          string
	port        int
	uiIP        string
	uiPort      int // 0: no Web UI
	metricsPort int // 0: no metrics
	logLevel    string
	// The file of the database; none is kept in memory.
	database         string
	pragmas          map[string]string
	namespaces       []string
	searchAttributes map[string]enumspb.IndexedValueType
	// Values in JSON by their keys.
	dynamicConfig map[string]string
}

func parseOptions(args []string) (*options, error) {
	if len(args) < 2 || args[0] != "server" || args[1] != "start-dev" {
		return nil, errors.New("usage: temporal-server server start-dev --port PORT [flags], or --version")
	}
	o := &options{
		namespaces:       []string{"default"},
		searchAttributes: map[string]enumspb.IndexedValueType{},
		pragmas:          map[string]string{},
		dynamicConfig:    map[string]string{},
	}
	flags := flag.NewFlagSet("temporal-server", flag.ContinueOnError)
	flags.SetOutput(os.Stderr)
	flags.StringVar(&o.ip, "ip", "127.0.0.1", "address to listen on")
	flags.IntVar(&o.port, "port", 7233, "port of the frontend")
	flags.StringVar(&o.uiIP, "ui-ip", "127.0.0.1", "address of the Web UI")
	flags.IntVar(&o.uiPort, "ui-port", 0, "port of the Web UI")
	flags.IntVar(&o.metricsPort, "metrics-port", 0, "port of the metrics")
	flags.StringVar(&o.logLevel, "log-level", "warn", "the least that is logged")
	flags.StringVar(&o.database, "db-filename", "", "file of the database")
	flags.Bool("headless", false, "no Web UI, which is so without --ui-port")
	flags.Bool("disable-config-file", false, "for the Temporal CLI; this program reads no such file")
	flags.Bool("disable-config-env", false, "for the Temporal CLI; this program reads no such variables")
	flags.Func("namespace", "a namespace to create", func(name string) error {
		o.namespaces = append(o.namespaces, name)
		return nil
	})
	flags.Func("search-attribute", "Name=Type, in every namespace that is created", func(text string) error {
		name, typeName, _ := strings.Cut(text, "=")
		valueType, err := enumspb.IndexedValueTypeFromString(typeName)
		o.searchAttributes[name] = valueType
		return err
	})
	flags.Func("sqlite-pragma", "name=value", func(text string) error { return put(o.pragmas, text) })
	flags.Func("dynamic-config-value", "key=JSON", func(text string) error { return put(o.dynamicConfig, text) })
	if err := flags.Parse(args[2:]); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	return o, nil
}

func put(values map[string]string, text string) error {
	name, value, found := strings.Cut(text, "=")
	if !found {
		return fmt.Errorf("%q is not name=value", text)
	}
	values[name] = value
	return nil
}

func (o *options) address(port int) string { return net.JoinHostPort(o.ip, strconv.Itoa(port)) }
