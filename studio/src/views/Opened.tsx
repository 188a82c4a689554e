// Opened.tsx: dialogs about the conversation that are read when they are first opened.
import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError } from "../lib/api";
import { look } from "../lib/fresh";
import { failed } from "../lib/state";
import type { Turn } from "../lib/tree";

export const opened = signal<{ kind: "branches" } | { kind: "documents" } | { kind: "personas" } | { kind: "evidence"; turn: Turn } | null>(null);
const parts: Record<"branches" | "documents" | "personas" | "evidence", () => Promise<{ default: ComponentType<any> }>> = {
    branches: () => import("./Branches"),
    documents: () => import("./ChatDocuments"),
    personas: () => import("./Personas"),
    evidence: () => import("./Evidence"),
};
export function Opened() {
    const what = opened.value!;
    const [View, setView] = useState<{ Part: ComponentType<any> } | null>(null);
    useEffect(() => {
        parts[what.kind]().then((m) => setView({ Part: m.default }), () => {
            opened.value = null;
            void look(true); // maybe the server has other parts now
            failed(new ApiError("offline", 0, "offline", 0));
        });
    }, []);
    return View ? <View.Part {...what} close={() => (opened.value = null)} /> : null;
}
