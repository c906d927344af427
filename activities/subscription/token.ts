/**
 * The operations on an agent's token: registering it with a notification router, verifying, checking and deleting it.
 *
 * Keys are made and kept before they are used, and every step can be made again after a crash: what a router has
 * already done it answers in the same way once more. What becomes of a step is a result, not a failure; an activity
 * fails only for want of the database.
 */
import { randomInt } from 'node:crypto';
import { ApplicationFailure } from '@temporalio/activity';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { KeyBox } from '../../api/key-box.ts';
import { KeyBoxError } from '../../api/key-box.ts';
import type { TokenMode, TokenResult, TokenUpdate } from '../../workflows/subscription/contract.ts';
import type { ServerKey } from '../../workflows/subscription/rules.ts';
import { inTransaction } from '../postgres.ts';
import { ensureAgent } from './agents.ts';
import { UNUSABLE_KEY, whileBeating } from './batches.ts';
import type { SubscriptionCommands } from './commands.ts';
import { keepingOf } from './reconciliation.ts';
import { makeChecksDue } from './records.ts';
import { isRetried, isUnknownToNotificationRouter } from './router/ports.ts';
import type {
  DeviceToken,
  RouterAddress,
  RouterError,
  RouterResult,
  TokenRef,
  TokenStatus,
} from './router/ports.ts';
import type { NotificationRouter } from './router/routers.ts';
import { openVerification } from './router/routers.ts';
import { generateAuthKeys, generateDhKeys, secretOrNothing } from './router/keys.ts';
import type { LoadedRequest, SavedToken } from './token-rows.ts';
import * as rows from './token-rows.ts';

/** How often a router pushes to a device that it is to look for messages itself; the least that routers take. */
const CRON_MINUTES = 20;

/** More often than one registration drops a token and makes another; ends a registration that would go on for ever. */
const MAX_REGISTRATIONS = 3;

export interface SubscriptionTokenResources {
  db: Pool;
  log: Logger;
  keyBox: KeyBox;
  notificationRouter: NotificationRouter;
  /** Of which one is chosen at random when a token is made. */
  ntfServers: readonly RouterAddress[];
  commands: SubscriptionCommands;
}

export type SubscriptionTokenActivities = ReturnType<typeof createSubscriptionTokenActivities>;

export function createSubscriptionTokenActivities(resources: SubscriptionTokenResources) {
  const { db, log, keyBox, notificationRouter, ntfServers, commands } = resources;

  return {
    /** Brings the token of a device as far as it can come by itself. */
    registerToken: (agentId: string, requestId: string): Promise<TokenResult> =>
      runOperation(agentId, 'register', requestId, async ({ device, mode = 'PERIODIC' }) => {
        if (!device) return refused('a device is needed');
        return resultOf(await registerDevice(agentId, device, mode));
      }),

    /** Verifies with the code in a push, which was encrypted for this token. */
    verifyToken: (agentId: string, requestId: string): Promise<TokenResult> =>
      runOperation(agentId, 'verify', requestId, async ({ device, verification }) => {
        const token = await loadToken(agentId);
        if (!token?.dhSecret || !isOf(token, device)) return refused('there is no such token to verify');
        const { nonce = '', code: content = '' } = verification ?? {};
        const code = openVerification(token.dhSecret, nonce, content);
        if (!code) {
          return failed({
            source: 'AGENT',
            code: 'CRYPTO',
            detail: 'the code was not encrypted for this token',
          });
        }
        // An active token stays active meanwhile, so that work that needs it continues.
        if (token.status !== 'ACTIVE') {
          await save(agentId, token, { status: 'CONFIRMED', action: { kind: 'VERIFY', code } });
        }
        return resultOf(await verifyCode(agentId, token, code));
      }),

    /** Asks the router how the token stands, and saves that. A token that it has forgotten is NEW again. */
    checkToken: (agentId: string, requestId: string): Promise<TokenResult> =>
      runOperation(agentId, 'check', requestId, async ({ device }) => {
        const token = await loadToken(agentId);
        if (token?.tokenId === undefined || !isOf(token, device))
          return refused('there is no such token to check');
        const result = await checkStatus(agentId, token, (status) => {
          const isOver = status.startsWith('INVALID') || status === 'EXPIRED';
          return isOver ? undefined : token.action;
        });
        if (isForgotten(result)) await createToken(agentId, token.device, token.mode);
        return resultOf(result);
      }),

    /** The store phase of a deletion. It leaves a record for the network phase, which outlives the token. */
    deleteToken: (agentId: string, requestId: string): Promise<TokenResult> =>
      runOperation(agentId, 'delete', requestId, async ({ device, isDone }) => {
        // The effect of an earlier attempt.
        if (isDone) return { ok: true };
        const token = device ? await loadToken(agentId) : undefined;
        if (device && !(token && isOf(token, device))) return refused('there is no such token to delete');
        const removed = await inTransaction(db, async (client) => {
          if (!(await rows.markRequestDone(client, requestId))) return {};
          return rows.removeToken(client, agentId, token, keyBox);
        });
        if (!removed) return refused('there is no token to delete');
        log.info({ agent_id: agentId, is_router_told: removed.server !== undefined }, 'token deleted');
        await kickDeletion(agentId, removed.server);
        return { ok: true };
      }),

    /** Has subscriptions follow a token that was changed or deleted. */
    async followToken(agentId: string): Promise<void> {
      if (keepingOf(await rows.loadToken(db, agentId)) !== 'as they are') await commands.reconcile(agentId);
    },

    /** Has the device told now and then to look for messages. @throws ApplicationFailure while the router is away. */
    async setTokenCron(agentId: string): Promise<void> {
      const token = await loadToken(agentId);
      const ref = token && refOf(token);
      if (token?.status !== 'ACTIVE' || !ref) return;
      const result = await notificationRouter.setCron(ref, CRON_MINUTES);
      if (result.ok) return;
      const { source, code } = result.error;
      if (isRetried(result.error))
        throw ApplicationFailure.create({ message: `${source} ${code}`, type: code });
      log.warn({ agent_id: agentId, source, code }, 'router does not take the cron interval of a token');
    },

    /** The request has been answered, and what it held is needed no more. */
    removeTokenRequest: (requestId: string): Promise<void> => rows.removeTokenRequest(db, requestId),
  };

  /**
   * Runs an operation that a client has asked for. Secrets that do not open are an error for the client, not a
   * failure.
   */
  async function runOperation(
    agentId: string,
    kind: TokenUpdate,
    requestId: string,
    body: (request: LoadedRequest) => Promise<TokenResult>,
  ): Promise<TokenResult> {
    try {
      return await whileBeating(async () => {
        const request = await rows.loadTokenRequest(db, keyBox, agentId, kind, requestId);
        return request ? body(request) : refused('there is no such request');
      });
    } catch (error) {
      if (!(error instanceof KeyBoxError)) throw error;
      log.error({ agent_id: agentId, reason: error.message }, 'token cannot be read');
      return failed({ source: 'STORE', code: 'INTERNAL', detail: error.message });
    }
  }

  function loadToken(agentId: string): Promise<SavedToken | undefined> {
    return rows.loadSavedToken(db, keyBox, agentId);
  }

  function save(agentId: string, token: SavedToken, change: rows.TokenChange): Promise<void> {
    return rows.saveToken(db, keyBox, agentId, token, change);
  }

  /** Takes the next step by the state of the saved token, from the beginning when the token had to be dropped; saves the mode then. */
  async function registerDevice(
    agentId: string,
    device: DeviceToken,
    mode: TokenMode,
  ): Promise<RouterResult<TokenStatus>> {
    for (let registration = 1; ; registration++) {
      const token = (await loadToken(agentId)) ?? (await createToken(agentId, device, mode));
      if (!token) return refused('no notification router is configured');
      const result = await continueRegistration(agentId, token, device);
      if (result !== START_AFRESH) {
        if (result.ok) await save(agentId, token, { mode });
        return result;
      }
      if (registration === MAX_REGISTRATIONS) return refused('the token was dropped again and again');
    }
  }

  async function continueRegistration(
    agentId: string,
    token: SavedToken,
    device: DeviceToken,
  ): Promise<RouterResult<TokenStatus> | typeof START_AFRESH> {
    const { action } = token;
    const ref = refOf(token);
    const isSameDevice = isOf(token, device);
    if (!ref) {
      if (action?.kind !== 'REGISTER') return { ok: true, value: token.status };
      if (!isSameDevice) await save(agentId, token, { device });
      return registerAtRouter(agentId, { ...token, device });
    }
    if (action?.kind === 'REGISTER' || action?.kind === 'DELETE') return { ok: true, value: token.status };
    if (!isSameDevice) return replaceDevice(agentId, token, device);
    switch (action?.kind) {
      case 'VERIFY':
        return verifyCode(agentId, token, action.code);
      case 'CHECK': {
        const result = await checkStatus(agentId, token, (status) =>
          status === 'ACTIVE' ? { kind: 'CHECK' } : undefined,
        );
        return isForgotten(result) ? START_AFRESH : result;
      }
      case undefined:
        return registerAtRouter(agentId, token);
    }
  }

  /** Makes keys for a token and keeps them, before any router hears of them. */
  async function createToken(
    agentId: string,
    device: DeviceToken,
    mode: TokenMode,
  ): Promise<SavedToken | undefined> {
    if (ntfServers.length === 0) return undefined;
    const address = ntfServers[randomInt(ntfServers.length)]!;
    await ensureAgent(db, agentId);
    const made = { device, address, auth: generateAuthKeys(), dh: generateDhKeys(), mode };
    await inTransaction(db, (client) => rows.insertToken(client, keyBox, agentId, made));
    // Another process may have made one first, which then counts.
    return loadToken(agentId);
  }

  async function registerAtRouter(agentId: string, token: SavedToken): Promise<RouterResult<TokenStatus>> {
    const { address, device, auth, dh } = token;
    const result = await notificationRouter.registerToken({
      address,
      device,
      auth,
      dhPublicKey: dh.publicKey,
    });
    if (!result.ok) return result;
    const { tokenId, routerDhPublicKey } = result.value;
    const secret = secretOrNothing(routerDhPublicKey, dh.privateKey);
    if (!secret) return failed(UNUSABLE_KEY);
    await save(agentId, token, { tokenId, dhSecret: secret, status: 'REGISTERED' });
    log.info({ agent_id: agentId, server: `${address.host}:${address.port}` }, 'token registered');
    return { ok: true, value: 'REGISTERED' };
  }

  /** Takes the token over to another device; the router keeps its subscriptions. */
  async function replaceDevice(
    agentId: string,
    token: SavedToken,
    device: DeviceToken,
  ): Promise<RouterResult<TokenStatus> | typeof START_AFRESH> {
    const result = await notificationRouter.replaceToken(refOf(token)!, device);
    if (result.ok) {
      await save(agentId, token, { device, status: 'REGISTERED' });
      return { ok: true, value: 'REGISTERED' };
    }
    if (isRetried(result.error)) return result;
    // What a router still knows must not go on pushing to the former device.
    await dropToken(agentId, token, isForgotten(result) ? undefined : keyBox);
    return START_AFRESH;
  }

  async function verifyCode(
    agentId: string,
    token: SavedToken,
    code: Buffer,
  ): Promise<RouterResult<TokenStatus>> {
    const result = await notificationRouter.verifyToken(refOf(token)!, code);
    if (result.ok) {
      await save(agentId, token, { status: 'ACTIVE', action: { kind: 'CHECK' } });
      // Not before: with a token that is not active, a check fails for good.
      await makeChecksDue(db, agentId);
      return { ok: true, value: 'ACTIVE' };
    }
    if (isForgotten(result)) {
      await dropToken(agentId, token);
      // The caller hears that the code was wrong in any case, and waits for another one.
      await registerDevice(agentId, token.device, token.mode);
    }
    return result;
  }

  /** Saves what the router says, and drops a token that it has forgotten. @param actionAfter what is to be done about the token next. */
  async function checkStatus(
    agentId: string,
    token: SavedToken,
    actionAfter: (status: TokenStatus) => SavedToken['action'],
  ): Promise<RouterResult<TokenStatus>> {
    const result = await notificationRouter.checkToken(refOf(token)!);
    if (result.ok) await save(agentId, token, { status: result.value, action: actionAfter(result.value) });
    else if (isForgotten(result)) await dropToken(agentId, token);
    return result;
  }

  /** @param forget given: the router is to forget the token too. */
  async function dropToken(agentId: string, token: SavedToken, forget?: KeyBox): Promise<void> {
    const removed = await inTransaction(db, (client) => rows.removeToken(client, agentId, token, forget));
    log.warn({ agent_id: agentId }, 'token dropped, to be registered afresh');
    await kickDeletion(agentId, removed?.server);
  }

  /** @param server where a record of a deletion is. If this fails, the reconciliation wakes the worker. */
  async function kickDeletion(agentId: string, server: ServerKey | undefined): Promise<void> {
    if (server) await commands.kickTokenDeletion(agentId, server).catch(() => undefined);
  }
}

/** The token was dropped: registering starts from the beginning. */
const START_AFRESH = Symbol('start afresh');

const isForgotten = (result: RouterResult<unknown>): boolean =>
  !result.ok && isUnknownToNotificationRouter(result.error);

const failed = (error: RouterError): { ok: false; error: RouterError } => ({ ok: false, error });

/** What a client asked for cannot be done as things are. */
const refused = (detail: string): { ok: false; error: RouterError } =>
  failed({ source: 'AGENT', code: 'PROHIBITED', detail });

const resultOf = (result: RouterResult<TokenStatus>): TokenResult =>
  result.ok ? { ok: true, status: result.value } : result;

function refOf({ address, tokenId, auth }: SavedToken): TokenRef | undefined {
  return tokenId === undefined ? undefined : { address, tokenId, privateKey: auth.privateKey };
}

/** @param device undefined: whichever it is. */
function isOf(token: SavedToken, device: DeviceToken | undefined): boolean {
  return !device || (token.device.provider === device.provider && token.device.token === device.token);
}
