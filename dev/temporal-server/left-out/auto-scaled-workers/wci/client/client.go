// Package client stands in for the one that has workers started in the clouds. Here none are: it finds nothing.
package client

import (
	"context"

	deploymentpb "go.temporal.io/api/deployment/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/auto-scaled-workers/wci/workflow/iface"
	"go.temporal.io/server/common/namespace"
	"go.uber.org/fx"
)

// Client is asked by Temporal about every version of a worker deployment.
type Client struct{}

var Module = fx.Provide(func() Client { return Client{} })

var errLeftOut = serviceerror.NewUnimplemented("workers in clouds are left out of this build")

type version = deploymentpb.WorkerDeploymentVersion

func (Client) DescribeWorkerControllerInstance(context.Context, *namespace.Namespace, *version) (*iface.Description, []byte, error) {
	return nil, nil, serviceerror.NewNotFound("no worker of this version is in a cloud")
}

func (Client) UpdateWorkerControllerInstance(
	context.Context, *namespace.Namespace, *version, []byte, string, map[string]iface.ScalingGroupSpecUpdate, []string,
) (*iface.Description, error) {
	return nil, errLeftOut
}

func (Client) ValidateWorkerControllerInstanceSpec(
	context.Context, *namespace.Namespace, *version, string, map[string]iface.ScalingGroupSpecUpdate, []string,
) error {
	return errLeftOut
}

func (Client) DeleteWorkerControllerInstance(context.Context, *namespace.Namespace, *version, string) error {
	return nil
}
