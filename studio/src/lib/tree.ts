// tree.ts: the turns of one conversation: a tree, of which one path is shown.
export interface Tool {
    name: string;
    arguments: string;
    result?: string;
    ok?: boolean;
    ms?: number;
}
export interface Source {
    title: string;
    path?: string;
    url?: string;
    text?: string;
    page?: number;
    line?: number;
}
export interface Attachment {
    name: string;
    type: string;
    bytes: number;
    text?: string;
    url?: string; // data: of an image
}
export interface Waiting {
    id: string;
    name: string;
    arguments: string;
    until: number; // ms, as Date.now()
}
export interface Turn {
    id: string;
    parent: string;
    role: "user" | "assistant";
    text: string;
    at: number;
    model?: string;
    thinking?: string;
    thinkingMs?: number;
    thinkingParts?: number; // of the stream: about as many as tokens, until the usage is known
    budget?: number; // tokens that thinking may take
    tools?: Tool[];
    steps?: { step: string; data: unknown }[];
    sources?: Source[];
    files?: Attachment[];
    usage?: { prompt: number; cached: number; generated: number; reasoning: number };
    timings?: { prefillMs: number; perSecond: number; firstMs: number; drafted: number; accepted: number };
    answer?: string; // name for feedback
    waits?: Waiting[]; // calls that wait now for the user's permission
    asks?: string[]; // tools that wait for the user's word
    rating?: "up" | "down";
    finish?: string;
    error?: string;
}

export function newId(prefix: string): string {
    const bytes = crypto.getRandomValues(new Uint8Array(12));
    return prefix + [...bytes].map((b) => b.toString(16).padStart(2, "0")).join("");
}

export class Tree {
    readonly turns = new Map<string, Turn>();
    private readonly children = new Map<string, string[]>();
    private readonly chosen = new Map<string, string>();

    put(turn: Turn): void {
        if (!this.turns.has(turn.id)) {
            const list = this.children.get(turn.parent);
            if (list) list.push(turn.id);
            else this.children.set(turn.parent, [turn.id]);
        }
        this.turns.set(turn.id, turn);
    }
    drop(id: string): string[] {
        const gone = [id];
        for (let i = 0; i < gone.length; i++) gone.push(...(this.children.get(gone[i]) ?? []));
        const parent = this.turns.get(id)?.parent ?? "";
        this.children.set(parent, (this.children.get(parent) ?? []).filter((x) => x !== id));
        for (const x of gone) {
            this.turns.delete(x);
            this.children.delete(x);
        }
        if (this.chosen.get(parent) === id) this.chosen.delete(parent);
        return gone;
    }
    choose(id: string): void {
        for (let t = this.turns.get(id); t; t = this.turns.get(t.parent)) this.chosen.set(t.parent, t.id);
    }
    below(id: string): string[] {
        return this.children.get(id) ?? [];
    }
    get hasBranches(): boolean {
        for (const list of this.children.values()) if (list.length > 1) return true;
        return false;
    }
    siblings(id: string): string[] {
        return this.below(this.turns.get(id)?.parent ?? "");
    }
    leaf(id: string): string {
        for (;;) {
            const list = this.children.get(id);
            if (!list?.length) return id;
            id = this.chosen.get(id) ?? list[list.length - 1];
        }
    }
    // The path that is shown, from the root.
    path(): Turn[] {
        const out: Turn[] = [];
        let id = "";
        for (;;) {
            const list = this.children.get(id);
            if (!list?.length) return out;
            const next = this.chosen.get(id);
            id = next && this.turns.has(next) ? next : list[list.length - 1];
            out.push(this.turns.get(id)!);
        }
    }
    // From the root to a turn.
    to(id: string): Turn[] {
        const out: Turn[] = [];
        for (let t = this.turns.get(id); t; t = this.turns.get(t.parent)) out.unshift(t);
        return out;
    }
}
