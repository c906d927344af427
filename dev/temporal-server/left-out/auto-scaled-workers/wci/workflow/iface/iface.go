// Package iface has the types by which Temporal describes workers in clouds.
package iface

import (
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
)

const ValidationResultFailed = "failed"

type (
	ComputeProviderType  string
	ScalingAlgorithmType string

	ComputeProviderSpec struct {
		ProviderType  ComputeProviderType
		Config        *commonpb.Payload
		NexusEndpoint string
	}

	ScalingAlgorithmSpec struct {
		ScalingAlgorithm ScalingAlgorithmType
		Config           *commonpb.Payload
	}

	ScalingGroupSpec struct {
		TaskTypes []enumspb.TaskQueueType
		Compute   ComputeProviderSpec
		Scaling   *ScalingAlgorithmSpec
	}

	ScalingGroupSpecUpdate struct {
		Spec       ScalingGroupSpec
		UpdateMask []string
	}

	WorkerControllerInstanceSpec struct {
		ScalingGroupSpecs map[string]ScalingGroupSpec
	}

	ValidationStatus struct {
		Status             string
		LastValidationTime time.Time
		ErrMessage         string
	}

	Description struct {
		Spec             *WorkerControllerInstanceSpec
		ValidationStatus *ValidationStatus
	}
)
