//go:build temporal1_32

package main

import (
	"slices"

	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"go.temporal.io/server/common/dynamicconfig"
)

// parseSettings finds keys that this server does not know, and values that do not fit.
func parseSettings(values map[string]string) (dynamicconfig.StaticClient, []error) {
	var loader dynamicconfig.YamlLoader
	for name, value := range values {
		loader.LoadValue(dynamicconfig.MakeKey(name), []byte("- value: "+value))
	}
	settings := dynamicconfig.StaticClient{}
	for key, value := range loader.Map {
		settings[key] = value
	}
	return settings, slices.Concat(loader.Errors, loader.Warnings)
}

// askNobodyElse keeps the Web UI from looking for news.
func askNobodyElse(cfg *uiconfig.Config) { cfg.DisableNewsFetch = true }
