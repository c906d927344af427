/** A Redis Cluster, which neither service nor command line can use. */

export const NO_CLUSTER =
  'it is a Redis Cluster, and the scripts of a hand-off need keys of several slots: use a single master, with replicas and sentinels if it must not be alone';

/** @param info what Redis answers to INFO. */
export const isCluster = (info: string): boolean => /^cluster_enabled:1/m.test(info);
