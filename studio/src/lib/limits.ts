// limits.ts: limits of the server that the page names.
import { signal } from "@preact/signals";
import { maybe } from "./api";

export interface Limits {
    thinking_budgets: Record<string, number>; // tokens, by effort; absent: no limit
    min_learned_bytes: number; // answers that are shorter are not learned
}
export const limits = signal<Limits>({ thinking_budgets: {}, min_learned_bytes: 0 });
export async function loadLimits(): Promise<void> {
    limits.value = { ...limits.value, ...(await maybe<Partial<Limits>>("/props").catch(() => null)) };
}
