// route.ts: the address after '#' says which screen is shown.
import { signal } from "@preact/signals";
import type { IconName } from "../views/icons";

export type ScreenName = "chat" | "knowledge" | "models" | "insight" | "pipelines" | "admin";
export const screens: { name: ScreenName; icon: IconName }[] = [
    { name: "chat", icon: "chat" },
    { name: "knowledge", icon: "book" },
    { name: "models", icon: "cube" },
    { name: "insight", icon: "pulse" },
    { name: "pipelines", icon: "flow" },
    { name: "admin", icon: "key" },
];
export interface Route {
    screen: ScreenName;
    id: string;
}

function read(): Route {
    const [, first = "", second = ""] = location.hash.split("/");
    if (first === "c" && second) return { screen: "chat", id: decodeURIComponent(second) };
    const known = screens.find((s) => s.name === first && s.name !== "chat");
    return { screen: known?.name ?? "chat", id: second };
}
export const route = signal<Route>(read());
window.addEventListener("hashchange", () => (route.value = read()));
export const drawer = signal(false); // of narrow windows
export function go(hash: string): void {
    location.hash = hash;
}
