//go:build temporal1_32

package main

import (
	"errors"
	"fmt"
	"slices"

	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"go.temporal.io/server/common/dynamicconfig"
)

// dynamicConfig refuses a key that this server does not know, and a value that does not fit, both of which Temporal itself
// passes over.
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

// askNobodyElse keeps the Web UI from looking for news.
func askNobodyElse(cfg *uiconfig.Config) { cfg.DisableNewsFetch = true }
