// Command temporal-server is Temporal for one machine: all of its services in one process, kept in SQLite, with the Web UI.
//
// It takes the place of the Temporal CLI's development server where that cannot be downloaded, and understands the part of
// its command line that dev/servers/temporal.ts uses. What it is made of is Temporal's own; what it never uses is left out
// (see go.mod), so that it compiles in about a minute and a half.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/google/uuid"
	uiserver "github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	uioptions "github.com/temporalio/ui-server/v2/server/server_options"
	uiversion "github.com/temporalio/ui-server/v2/server/version"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/headers"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/metrics"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
	sqliteschema "go.temporal.io/server/schema/sqlite"
	"go.temporal.io/server/temporal"
)

const (
	clusterName = "active"
	storeName   = "sqlite"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "temporal-server:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if slices.Equal(args, []string{"--version"}) {
		fmt.Printf("temporal-server (Server %s, UI %s)\n", headers.ServerVersion, uiversion.UIVersion)
		return nil
	}
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	server, err := newServer(o)
	if err != nil {
		return err
	}

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	failed := make(chan error, 1)
	if o.uiPort != 0 {
		ui := newWebUI(o)
		defer ui.Stop()
		go func() { failed <- ui.Start() }()
	}
	if err := server.Start(); err != nil {
		return err
	}
	fmt.Printf("Temporal %s listens on %s\n", headers.ServerVersion, o.address(o.port))

	select {
	case err = <-failed:
		err = fmt.Errorf("the Web UI: %w", err)
	case <-stop:
	}
	return errors.Join(err, server.Stop())
}

func newServer(o *options) (temporal.Server, error) {
	store, err := openStore(o)
	if err != nil {
		return nil, err
	}
	settings, err := dynamicConfig(o.dynamicConfig)
	if err != nil {
		return nil, err
	}
	services, hosts, err := listeners(o)
	if err != nil {
		return nil, err
	}
	cfg := &config.Config{
		Global: config.Global{Metrics: metricsConfig(o)},
		Persistence: config.Persistence{
			DefaultStore:     storeName,
			VisibilityStore:  storeName,
			NumHistoryShards: 1,
			DataStores:       map[string]config.DataStore{storeName: {SQL: store}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {
				Enabled:                true,
				InitialFailoverVersion: 1,
				RPCAddress:             o.address(o.port),
				ClusterID:              uuid.NewString(),
			}},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services:            services,
		PublicClient:        config.PublicClient{HostPort: o.address(o.port)},
	}
	logger := log.NewZapLogger(log.BuildZapLogger(log.Config{Level: o.logLevel, Format: "console"}))
	return temporal.NewServer(
		temporal.WithConfig(cfg),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(hosts),
		temporal.WithLogger(logger),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper {
			return authorization.NewNoopClaimMapper()
		}),
		temporal.WithDynamicConfigClient(settings),
	)
}

// openStore creates the tables of a database that does not exist, and the namespaces that are missing.
func openStore(o *options) (*config.SQL, error) {
	store := &config.SQL{PluginName: sqliteplugin.PluginName, ConnectAttributes: maps.Clone(o.pragmas)}
	if o.database == "" {
		store.DatabaseName = "memory"
		store.ConnectAttributes["mode"] = "memory"
		store.ConnectAttributes["cache"] = "shared"
	} else {
		store.DatabaseName = o.database
		store.ConnectAttributes["mode"] = "rwc"
		if _, err := os.Stat(o.database); errors.Is(err, fs.ErrNotExist) {
			if err := sqliteschema.SetupSchema(store); err != nil {
				return nil, err
			}
		}
	}
	var namespaces []*sqliteschema.NamespaceConfig
	for _, name := range o.namespaces {
		namespace, err := sqliteschema.NewNamespaceConfig(clusterName, name, false, o.searchAttributes)
		if err != nil {
			return nil, err
		}
		namespaces = append(namespaces, namespace)
	}
	return store, sqliteschema.CreateNamespaces(store, namespaces...)
}

// dynamicConfig refuses keys that this server does not know and values that do not fit, which Temporal itself passes over.
func dynamicConfig(values map[string]string) (dynamicconfig.Client, error) {
	var loader dynamicconfig.YamlLoader
	for name, value := range values {
		loader.LoadValue(dynamicconfig.MakeKey(name), []byte("- value: "+value))
	}
	if err := errors.Join(slices.Concat(loader.Errors, loader.Warnings)...); err != nil {
		return nil, fmt.Errorf("dynamic configuration: %w", err)
	}
	settings := dynamicconfig.StaticClient{}
	for key, value := range loader.Map {
		settings[key] = value
	}
	return settings, nil
}

// listeners gives the frontend its port and every other service a free one.
func listeners(o *options) (map[string]config.Service, map[primitives.ServiceName]static.Hosts, error) {
	services := map[string]config.Service{}
	hosts := map[primitives.ServiceName]static.Hosts{}
	for _, name := range temporal.DefaultServices {
		port := o.port
		if name != string(primitives.FrontendService) {
			var err error
			if port, err = freePort(o.ip); err != nil {
				return nil, nil, err
			}
		}
		services[name] = config.Service{RPC: config.RPC{GRPCPort: port, BindOnIP: o.ip}}
		hosts[primitives.ServiceName(name)] = static.SingleLocalHost(o.address(port))
	}
	return services, hosts, nil
}

func freePort(ip string) (int, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func metricsConfig(o *options) *metrics.Config {
	if o.metricsPort == 0 {
		return nil
	}
	return &metrics.Config{Prometheus: &metrics.PrometheusConfig{
		ListenAddress: o.address(o.metricsPort),
		HandlerPath:   "/metrics",
	}}
}

func newWebUI(o *options) *uiserver.Server {
	cfg := &uiconfig.Config{
		Host:                o.uiIP,
		Port:                o.uiPort,
		TemporalGRPCAddress: o.address(o.port),
		EnableUI:            true,
		// On a loopback address there is no HTTPS.
		CORS:             uiconfig.CORS{CookieInsecure: true},
		HideLogs:         true,
		DisableNewsFetch: true,
	}
	return uiserver.NewServer(uioptions.WithConfigProvider(cfg))
}
