/** Which notifications are to be cancelled; all given filters must hold. Those without an open route are left alone. */
export interface OpenFilter {
  type?: string;
  producer?: string;
  /** Bounds of the time of acceptance; of one that is not accepted, of its first trouble or of its entry. Both included. */
  since?: Date;
  until?: Date;
}
