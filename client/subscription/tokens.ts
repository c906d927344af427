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

/** A router or this side has refused or could not be reached; `outcome` says which, and nothing was lost by it. */
export class TokenOperationError extends OperationFailedError {
  override name = 'TokenOperationError';
  readonly source: string;
  readonly code: string;

  constructor({ source, code, detail }: Extract<TokenResult, { ok: false }>['error']) {
    super([`${source} ${code}`, ...(detail === undefined ? [] : [detail])].join(': '));
    this.source = source;
    this.code = code;
  }
}

/**
 * All operations throw TokenOperationError for what was refused, and OperationFailedError for a wrong argument or when
 * no service answers in time; it does what it was asked for when it can.
 */
export function tokenOperations(resources: TokenResources) {
  const { temporal, db, agentId = 'default', limitMs = LIMIT_MS } = resources;
  return {
    /**
     * Registers a device, or continues a registration as far as it can go by itself. A new one is ended by `verify`,
     * with the code that is pushed to the device.
     *
     * @param mode default: INSTANT, as on the command line.
     * @returns the token's status.
     */
    register: (
      device: TokenDevice,
      mode: TokenMode = 'INSTANT',
      { requestedBy }: Requester = {},
    ): Promise<string> =>
      // Without the device, which is a person's.
      byAuthor({ db }, { action: 'tokens register', requestedBy, detail: mode }, () =>
        statusAfter('register', { ...contentOf(device), mode }),
      ),

    /**
     * @param verification of the push, as it came: base64url each.
     * @returns the token's status, `ACTIVE`.
     */
    verify: (
      device: TokenDevice,
      verification: { nonce: string; code: string },
      { requestedBy }: Requester = {},
    ): Promise<string> =>
      byAuthor({ db }, { action: 'tokens verify', requestedBy }, () =>
        statusAfter('verify', { ...contentOf(device), verification }),
      ),

    /**
     * @param device default: whichever the token has.
     * @returns what the router says.
     * @throws TokenOperationError `NTF AUTH` when it has forgotten the token, which is NEW from then on, to be registered.
     */
    check: (device?: TokenDevice): Promise<string> => statusAfter('check', contentOf(device)),

    /** Ends all subscriptions too. The router is told as soon as it can be reached. @param device as in `check`. */
    async delete(device?: TokenDevice, { requestedBy }: Requester = {}): Promise<void> {
      await byAuthor({ db }, { action: 'tokens delete', requestedBy }, () =>
        execute('delete', contentOf(device)),
      );
    },
  };

  async function statusAfter(update: TokenUpdate, content: TokenRequestContent): Promise<string> {
    const { status = '' } = await execute(update, content);
    return status;
  }

  async function execute(
    update: TokenUpdate,
    content: TokenRequestContent,
  ): Promise<Extract<TokenResult, { ok: true }>> {
    const checked = checkedBy(tokenRequestSchema, content);
    const requestId = randomUUID();
    const sealed = tokenRequests.seal(sealingBox(resources.keyBox), requestId, checked);
    await db.query(ENSURE_AGENT.text, [agentId]);
    await db.query(INSERT_REQUEST, [requestId, agentId, update, sealed]);
    const outcome = await ask(
      temporal,
      {
        workflowId: tokenWorkflowId(agentId),
        limitMs,
        ifSilent: 'it does what it was asked for once one runs',
        ifNotRunning: 'the same call starts it',
      },
      () =>
        temporal.workflow.executeUpdateWithStart<Workflow, TokenResult, [TokenRequest]>(update, {
          args: [{ requestId }],
          startWorkflowOperation: startOf(agentId),
          updateId: requestId,
        }),
    );
    if (!outcome.ok) throw new TokenOperationError(outcome.error);
    return outcome;
  }
}

/** One for each call: the client takes it once. */
function startOf(agentId: string) {
  return new WithStartWorkflowOperation<Workflow>(TOKEN_WORKFLOW, {
    workflowId: tokenWorkflowId(agentId),
    taskQueue: SUBSCRIPTION_TASK_QUEUE,
    args: [agentId],
    workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
    staticSummary: `notification token of ${agentId}`,
  });
}

const INSERT_REQUEST =
  'INSERT INTO subscriptions.requests (request_id, agent_id, kind, sealed) VALUES ($1, $2, $3, $4)';

/** Hex is the same in either case; a router knows one. */
const contentOf = (device: TokenDevice | undefined): TokenRequestContent =>
  device ? { device: { ...device, token: device.token.toLowerCase() } } : {};
