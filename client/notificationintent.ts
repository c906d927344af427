/**
 * The producer module `notificationintent`: builds intents that the service accepts, and appends them to its stream.
 * The constructors make the checks of the service, so an intent that one returns is never malformed.
 *
 * ```ts
 * const intent = newGameTurnReady({
 *   idempotencyKey: 'game-7/turn-54',
 *   recipientUserIds: ['user-1', 'user-2'],
 *   occurredAt: turn.generatedAt,
 *   payload: { game_id: 'game-7', game_name: 'Andromeda', turn_number: 54 },
 * });
 * const notificationId = await publishIntent(redis, intent);
 * ```
 *
 * A publication that fails degrades notifications; it must not roll back the business change it tells about.
 */
export * from './constructors.ts';
export * from './generated/galaxy.ts';
