//go:build !temporal1_32

package main

import (
	"fmt"
	"slices"

	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"go.temporal.io/server/common/dynamicconfig"
	"gopkg.in/yaml.v3"
)

// parseSettings finds keys that this server does not know, and values that do not fit.
func parseSettings(values map[string]string) (dynamicconfig.StaticClient, []error) {
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
	return settings, problems
}

// askNobodyElse: this Web UI looks for no news.
func askNobodyElse(*uiconfig.Config) {}
