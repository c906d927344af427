/** All that tests use of the SDK's internals. Lint refuses such imports in every other file. */
export {
  decodeTypedSearchAttributes,
  encodeUnifiedSearchAttributes,
} from '@temporalio/common/lib/converter/payload-search-attributes.js';
export { historyToJSON } from '@temporalio/common/lib/proto-utils.js';
export { msNumberToTs, optionalTsToMs } from '@temporalio/common/lib/time.js';
export { parseWorkflowCode } from '@temporalio/worker/lib/worker.js';
export type { Workflow } from '@temporalio/worker/lib/workflow/interface.js';
export { ReusableVMWorkflowCreator } from '@temporalio/worker/lib/workflow/reusable-vm.js';
export { globalHandlers } from '@temporalio/worker/lib/workflow/vm-shared.js';
export { createUnsafeRandomSource } from '@temporalio/workflow/lib/random-helpers.js';
