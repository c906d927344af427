/**
 * The token of an agent: registering it with a notification router, verifying, checking and deleting it
 * (workflows/subscription/contract.ts). What names a device or verifies it is sealed before it leaves this
 * process.
 */
import { randomUUID } from 'node:crypto';
import { WithStartWorkflowOperation, WorkflowIdConflictPolicy } from '@temporalio/client';
import type { Workflow } from '@temporalio/common';
import type { TokenRequestContent } from '../../api/subscription/rows.ts';
import { ENSURE_AGENT, tokenRequests, tokenRequestSchema } from '../../api/subscription/rows.ts';
import {
  SUBSCRIPTION_TASK_QUEUE,
  TOKEN_WORKFLOW,
  tokenWorkflowId,
} from '../../workflows/subscription/contract.ts';
import type {
  TokenMode,
  TokenResult,
  TokenRequest,
  TokenUpdate,
} from '../../workflows/subscription/contract.ts';
import type { Requester } from '../actions.ts';
import { byAuthor } from '../actions.ts';
import { OperationFailedError, checkedBy } from '../errors.ts';
import type { OperatorResources } from '../resources.ts';
import { ask } from '../temporal.ts';
import { sealingBox } from './import.ts';

/** A device as its push provider knows it. */
export type TokenDevice = NonNullable<TokenRequestContent['device']>;

export interface TokenResources extends Pick<OperatorResources, 'temporal' | 'db' | 'keyBox' | 'agentId'> {
  /** For the answer to an operation, ms; default 3 min, more than a router gets. */
  limitMs?: number;
}

const LIMIT_MS = 180_000;

/**
 * All operations throw OperationFailedError: `<source> <code>` when a router or this side has refused or a router could not be
 * reached, and nothing is lost by it; for a wrong argument; or when no service answers in time, which then does what it was asked
 * for when it can.
 */
export function tokenOperations(resources: TokenResources) {
  const { temporal, db, agentId = 'default', limitMs = LIMIT_MS } = resources;
  const workflowId = tokenWorkflowId(agentId);

  return {
    /**
     * Registers a device, or continues a registration as far as it can go by itself. A new one is ended by `verify`,
     * with the code that is pushed to the device.
     *
     * @param mode default: INSTANT, as on the command line.
     * @returns the token's status.
     */
    register: (device: TokenDevice, mode: TokenMode = 'INSTANT', requester?: Requester): Promise<string> =>
      change('register', { ...contentOf(device), mode }, requester, mode),

    /**
     * @param verification of the push, as it came: base64url each.
     * @returns the token's status, `ACTIVE`.
     */
    verify: (
      device: TokenDevice,
      verification: { nonce: string; code: string },
      requester?: Requester,
    ): Promise<string> => change('verify', { ...contentOf(device), verification }, requester),

    /**
     * @param device default: whichever the token has.
     * @returns what the router says.
     * @throws OperationFailedError `NTF AUTH` when it has forgotten the token, which is NEW from then on, to be registered.
     */
    check: (device?: TokenDevice): Promise<string> => execute('check', contentOf(device)),

    /** Ends all subscriptions too. The router is told as soon as it can be reached. @param device as in `check`. */
    async delete(device?: TokenDevice, requester?: Requester): Promise<void> {
      await change('delete', contentOf(device), requester);
    },
  };

  /** @param detail without the device, which is a person's. */
  function change(
    update: TokenUpdate,
    content: TokenRequestContent,
    { requestedBy }: Requester = {},
    detail?: string,
  ): Promise<string> {
    const action = { action: `tokens ${update}`, requestedBy, detail };
    return byAuthor({ db }, action, () => execute(update, content));
  }

  /** @returns the token's status; empty after `delete`. */
  async function execute(update: TokenUpdate, content: TokenRequestContent): Promise<string> {
    const checked = checkedBy(tokenRequestSchema, content);
    const requestId = randomUUID();
    const sealed = tokenRequests.seal(sealingBox(resources.keyBox), requestId, checked);
    await db.query(ENSURE_AGENT.text, [agentId]);
    await db.query(INSERT_REQUEST, [requestId, agentId, update, sealed]);
    const outcome = await ask(
      temporal,
      {
        workflowId,
        limitMs,
        ifSilent: 'it does what it was asked for once one runs',
        ifNotRunning: 'the same call starts it',
      },
      () =>
        temporal.workflow.executeUpdateWithStart<Workflow, TokenResult, [TokenRequest]>(update, {
          args: [{ requestId }],
          startWorkflowOperation: new WithStartWorkflowOperation<Workflow>(TOKEN_WORKFLOW, {
            workflowId,
            taskQueue: SUBSCRIPTION_TASK_QUEUE,
            args: [agentId],
            workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
            staticSummary: `notification token of ${agentId}`,
          }),
          updateId: requestId,
        }),
    );
    if (outcome.ok) return outcome.status ?? '';
    const { source, code, detail } = outcome.error;
    throw new OperationFailedError(
      [`${source} ${code}`, ...(detail === undefined ? [] : [detail])].join(': '),
    );
  }
}

const INSERT_REQUEST =
  'INSERT INTO subscriptions.requests (request_id, agent_id, kind, sealed) VALUES ($1, $2, $3, $4)';

/** Hex is the same in either case; a router knows one. */
const contentOf = (device: TokenDevice | undefined): TokenRequestContent =>
  device ? { device: { ...device, token: device.token.toLowerCase() } } : {};
