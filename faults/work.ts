/** What a kind of work is to the suite: something to put in, to wait for, and to hold against what came out. */
import type { Client } from '@temporalio/client';
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Operator } from '../client/operator.ts';
import type { Spoiled } from './ledger/excuse.ts';
import type { Verdict } from './ledger/verdict.ts';
import type { OutcomesName } from './options.ts';
import type { Producer } from './producer.ts';
import type { Random } from './random.ts';

export interface Arena {
  /** A sequence of chance for each purpose. */
  random(purpose: string): Random;
  /** Processes of the service. */
  services: number;
  /** Of the whole run; other kinds of work put in as much as fits. */
  intents: number;
  /** What producers of intents are told. */
  outcomes: OutcomesName;
  /** Directly to the servers; commands wait while one is away. */
  redis: Redis;
  /** For reads that block. */
  openRedis(): Redis;
  db: Pool;
  operator: Operator;
  temporal: Client;
  dataDir: string;
  userServiceFails: (times: number) => void;
  setUser: (id: string, user: { email: string; preferredLanguage: string }) => void;
  /** A producer that appends entries to a stream and keeps account of the answers. */
  openProducer<Content>(
    stream: string,
    fieldsOf: (content: Content, attempt: number) => [name: string, value: string | Buffer][],
  ): Producer<Content>;
  /** Indexes from 0, evenly over the time of the load; what is late, by its work or its start, is made up for. */
  spread(count: number): AsyncGenerator<number>;
  /** Calls again and again while a server is away. */
  persist<T>(what: string, call: () => Promise<T>): Promise<T>;
  /** Asks for something that may fail: waits for it a while, and then leaves it. */
  offer<T>(call: () => Promise<T>): Promise<T | undefined>;
  /** Waits for a condition; what it throws counts as not yet. @throws Error saying what was in the way. */
  until(what: string, probe: () => Promise<boolean>): Promise<void>;
  faults: readonly Spoiled[];
  /** A store has forgotten something so far. */
  hasLost(): boolean;
}

/** Marks of this run, planted where only their owners may read them. */
export interface Planted {
  what: string;
  value: string;
}

export interface Work {
  name: string;
  /** What must be there before anything can be put in; no faults happen yet. */
  prepare?(): Promise<void>;
  /** Puts everything in, over the time of the load. */
  load(): Promise<void>;
  /** Waits until all of it is done; no faults happen any more. */
  settle(): Promise<void>;
  /** Holds what came out against what went in. */
  verify(): Promise<Verdict>;
  /** Of the service's processes. */
  env: Record<string, string>;
  /** What is different for each of them. */
  envOf?(service: number): Record<string, string>;
  planted: readonly Planted[];
  stop(): Promise<void>;
}
