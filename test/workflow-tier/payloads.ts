/** Values, failures and times as Temporal writes them. */
import type { TypedSearchAttributes } from '@temporalio/common';
import {
  ChildWorkflowFailure,
  DefaultFailureConverter,
  RetryState,
  arrayFromPayloads,
  defaultPayloadConverter,
  toPayloads,
} from '@temporalio/common';
import type { temporal } from '@temporalio/proto';
import {
  decodeTypedSearchAttributes,
  encodeUnifiedSearchAttributes,
  msNumberToTs,
  optionalTsToMs,
} from '../sdk-internals.ts';

type Payload = temporal.api.common.v1.IPayload;
type Failure = temporal.api.failure.v1.IFailure;
type Optional<Type> = Type | null | undefined;

/** Search attributes by name, encoded. */
export type Fields = Record<string, Payload>;

const failures = new DefaultFailureConverter();

export const payloadOf = (value: unknown): Payload => defaultPayloadConverter.toPayload(value);
export const payloadsOf = (values: readonly unknown[]): Payload[] =>
  toPayloads(defaultPayloadConverter, ...values) ?? [];
export const valueOfPayload = <Value>(payload: Optional<Payload>): Value =>
  (payload ? defaultPayloadConverter.fromPayload(payload) : undefined) as Value;
export const valuesOf = (payloads: Optional<Payload[]>): unknown[] =>
  arrayFromPayloads(defaultPayloadConverter, payloads);

export const failureOf = (error: unknown): Failure => failures.errorToFailure(error, defaultPayloadConverter);
export function failureOfChild(workflowId: string, workflowType: string, cause: Error): Failure {
  const execution = { workflowId, runId: `${workflowId}/run` };
  const { RETRY_POLICY_NOT_SET } = RetryState;
  return failureOf(new ChildWorkflowFailure('default', execution, workflowType, RETRY_POLICY_NOT_SET, cause));
}
export const errorOf = (failure: Optional<Failure>): Error =>
  failures.failureToError(failure!, defaultPayloadConverter);

/** Of a duration, or of a time; ms. */
export const durationOf = optionalTsToMs;
export const timestampOf = msNumberToTs;

export const fieldsOf = (attributes: TypedSearchAttributes): Fields =>
  encodeUnifiedSearchAttributes(undefined, attributes);
export const attributesOf = (fields: Optional<Fields>): TypedSearchAttributes =>
  decodeTypedSearchAttributes(fields);
