/** `temporal.api.enums.v1.TaskQueueType`, which the SDK does not export: what tasks of workflows wait in, and of activities. */
export const WORKFLOW_TASKS = 1;
export const ACTIVITY_TASKS = 2;
