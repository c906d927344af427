/** Addresses of Temporal's Web UI. Their form was tried with UI 2.42.1; slashes in workflow ids must be encoded. */

export interface WebUi {
  /** E.g. `http://127.0.0.1:8233`. */
  uiUrl: string;
  namespace: string;
}

/** The link as a field of a row, or none when it is not known where the Web UI is. */
export function linkField(
  { uiUrl, namespace }: { uiUrl?: string; namespace: string },
  workflowId: string,
): { link?: string } {
  return uiUrl === undefined ? {} : { link: workflowLink({ uiUrl, namespace }, workflowId) };
}

/** The page of a workflow: of one run when it is given, else of the latest one. */
export function workflowLink({ uiUrl, namespace }: WebUi, workflowId: string, runId?: string): string {
  const base = uiUrl.replace(/\/+$/, '');
  const workflow = `${base}/namespaces/${encodeURIComponent(namespace)}/workflows/${encodeURIComponent(workflowId)}`;
  return runId === undefined ? workflow : `${workflow}/${encodeURIComponent(runId)}/history`;
}
