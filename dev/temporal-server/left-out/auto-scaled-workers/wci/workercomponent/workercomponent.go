package workercomponent

import "go.uber.org/fx"

// Module adds nothing to Temporal's own workers.
var Module = fx.Options()
