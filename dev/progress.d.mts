export function reportStep(report: (line: string) => void, startedAt: number, done: string): void;
