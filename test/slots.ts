/** How the servers of a run are divided among test files. Apart from the harness, which globalSetup cannot load. */

/** How many slots a run can take; Redis has as many databases. */
export const SLOTS = 2_000;

/** How many namespaces are ready before a slot asks for them. More live only while more slots are in use. */
export const NAMESPACES_AHEAD = 8;

/** A database with all migrations, which each slot copies. */
export const TEMPLATE_DATABASE = 'test_template';

export const databaseOf = (slot: number): string => `test_${slot}`;

export const namespaceOf = (slot: number): string => `test-${slot}`;

/** The role of a slot's services in PostgreSQL, in a run with a pooler. */
export const roleOfSlot = (slot: number): string => `service_${slot}`;
