// Palette.tsx: every action and every conversation by typing a part of its name.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { t, type Word } from "../i18n";
import { conversations, failed, loadConversations, models, searchText, setChat, startNew } from "../lib/state";
import { change } from "../lib/settings";
import { go, screens } from "../lib/route";
import { panelOpen } from "./Chat";
import { Dialog } from "./Dialog";
import { Icon, type IconName } from "./icons";
import { settingsOpen } from "./Settings";
import { showSearch } from "./Sidebar";

export const paletteOpen = signal(false);
interface Action {
    name: string;
    icon: IconName;
    act: () => void;
}

function actions(): Action[] {
    return [
        { name: t("chat.new"), icon: "plus", act: startNew },
        ...screens.map((s) => ({ name: t(`screen.${s.name}` as Word), icon: s.icon, act: () => go(s.name === "chat" ? "#/" : `#/${s.name}`) })),
        { name: t("settings"), icon: "gear", act: () => (settingsOpen.value = true) },
        { name: t("chat.settings"), icon: "sliders", act: () => (panelOpen.value = true) },
        ...(["light", "dark", "system"] as const).map((theme) => ({ name: t("pair", { name: t("settings.theme"), value: t(`settings.theme.${theme}`) }), icon: "moon" as const, act: () => change({ theme }) })),
        ...(["en", "fr"] as const).map((language) => ({ name: t("pair", { name: t("settings.language"), value: t(`settings.language.${language}`) }), icon: "book" as const, act: () => change({ language }) })),
        ...models.value.map((m) => ({ name: t("pair", { name: t("model"), value: m.id }), icon: "cube" as const, act: () => setChat({ model: m.id }) })),
        ...conversations.value.map((c) => ({ name: c.title || t("chat.untitled"), icon: "chat" as const, act: () => go(`#/c/${c.id}`) })),
    ];
}

export function Palette() {
    const [text, setText] = useState("");
    const [at, setAt] = useState(0);
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const found = actions().filter((a) => words.every((w) => a.name.toLowerCase().includes(w))).slice(0, 40);
    const close = () => (paletteOpen.value = false);
    const pick = (a: Action | undefined) => {
        close();
        if (a) return a.act();
        searchText.value = text;
        loadConversations().catch(failed);
        showSearch();
    };
    useEffect(() => document.getElementById(`pick-${at}`)?.scrollIntoView({ block: "nearest" }), [at]);
    return (
        <Dialog title={t("palette")} close={close} kind="palette">
            <input
                type="text"
                role="combobox"
                aria-expanded="true"
                aria-controls="palette-list"
                aria-activedescendant={found.length ? `pick-${at}` : undefined}
                aria-label={t("palette")}
                placeholder={t("palette.hint")}
                value={text}
                ref={(el) => el?.focus()}
                onInput={(e) => {
                    setText(e.currentTarget.value);
                    setAt(0);
                }}
                onKeyDown={(e) => {
                    if (e.key === "ArrowDown") setAt(Math.min(at + 1, found.length - 1));
                    else if (e.key === "ArrowUp") setAt(Math.max(at - 1, 0));
                    else if (e.key === "Enter") pick(found[at]);
                    else return;
                    e.preventDefault();
                }}
            />
            <ul id="palette-list" role="listbox" aria-label={t("palette")}>
                {found.map((a, i) => (
                    <li key={`${a.name}${i}`} id={`pick-${i}`} role="option" aria-selected={i === at} onClick={() => pick(a)}>
                        <Icon name={a.icon} />
                        {a.name}
                    </li>
                ))}
            </ul>
            {found.length ? null : <p class="quiet centre">{t("palette.none")}</p>}
        </Dialog>
    );
}
