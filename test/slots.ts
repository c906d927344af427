/** How the servers of a run are divided among test files. Apart from the harness, which globalSetup cannot load. */

/** How many test files a run can hold. */
export const SLOTS = 300;

export const namespaceOf = (slot: number): string => `test-${slot}`;

/** The role of a slot's services in PostgreSQL, in a run with a pooler. */
export const roleOfSlot = (slot: number): string => `service_${slot}`;
