//go:build !temporal1_32

package main

import (
	"errors"
	"fmt"
	"slices"

	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"go.temporal.io/server/common/dynamicconfig"
	"gopkg.in/yaml.v3"
)

// dynamicConfig refuses a key that this server does not know, and a value that does not fit, both of which Temporal itself
// passes over.
func dynamicConfig(values map[string]string) (dynamicconfig.Client, error) {
	settings := dynamicconfig.StaticClient{}
	var problems []error
	for name, text := range values {
		found := dynamicconfig.ValidateFile(fmt.Appendf(nil, "%s: [{value: %s}]", name, text))
		problems = slices.Concat(problems, found.Errors, found.Warnings)
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			problems = append(problems, err)
		}
		settings[dynamicconfig.Key(name)] = value
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("dynamic configuration: %w", err)
	}
	return settings, nil
}

// askNobodyElse: this Web UI looks for no news.
func askNobodyElse(*uiconfig.Config) {}
