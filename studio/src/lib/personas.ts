// personas.ts: the personas that the user wrote: the server keeps them, a conversation names one.
import { signal } from "@preact/signals";
import { maybe, post, remove } from "./api";
import type { ChatSettings } from "./settings";

export interface Persona {
    id: number;
    name: string;
    text: string;
}
export const MOST_NAME = 64; // bytes, as the server counts
export const MOST_TEXT = 16384;
export const personas = signal<Persona[] | null>(null); // null: the server keeps none

const PATH = "/chimere/v1/personas";
export async function loadPersonas(): Promise<void> {
    personas.value = (await maybe<{ data: Persona[] }>(PATH))?.data ?? null;
}
// id 0: a new one.
export async function savePersona(p: Persona): Promise<Persona> {
    const now = await post<Persona>(p.id ? `${PATH}/${p.id}` : PATH, { name: p.name.trim(), text: p.text.trim() });
    await loadPersonas();
    return now;
}
export async function removePersona(id: number): Promise<void> {
    await remove(`${PATH}/${id}`);
    await loadPersonas();
}

// What precedes the messages: who writes, then how this conversation is answered.
export function systemOf(chat: ChatSettings): string {
    const who = personas.value?.find((p) => p.id === chat.ownPersona);
    return [who?.text, chat.system.trim()].filter(Boolean).join("\n\n");
}
