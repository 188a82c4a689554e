// Sidebar.tsx: where one can go: the screens, and the conversations of this key.
import { useRef, useState } from "preact/hooks";
import { t, type Word } from "../i18n";
import { loadConversations, conversations, current, moreConversations, removeConversation, searchText, startNew, update, type Conversation } from "../lib/state";
import { download } from "../lib/exchange";
import { drawer, route, screens } from "../lib/route";
import { change } from "../lib/settings";
import { Icon } from "./icons";
import { settingsOpen } from "./Settings";

function group(c: Conversation): Word {
    if (c.pinned) return "side.pinned";
    const age = (Date.now() / 1000 - c.updated_at) / 86400;
    return age < 1 ? "side.today" : age < 7 ? "side.week" : "side.older";
}

function Entry({ c, leave }: { c: Conversation; leave: () => void }) {
    const [renaming, setRenaming] = useState(false);
    const menu = useRef<HTMLDetailsElement>(null);
    const here = current.value?.id === c.id && route.value.screen === "chat";
    const act = (fn: () => void) => () => {
        if (menu.current) menu.current.open = false;
        fn();
    };
    if (renaming)
        return (
            <form
                class="entry"
                onSubmit={(e) => {
                    e.preventDefault();
                    setRenaming(false);
                    void update(c.id, { title: new FormData(e.currentTarget).get("title") as string });
                }}
            >
                <input name="title" type="text" aria-label={t("side.rename")} defaultValue={c.title} maxLength={120} ref={(el) => el?.focus()} onBlur={(e) => e.currentTarget.form?.requestSubmit()} />
            </form>
        );
    return (
        <div class={`entry ${here ? "here" : ""}`}>
            <a href={`#/c/${c.id}`} aria-current={here ? "page" : undefined} onClick={leave}>
                <span class="entry-title">{c.title || t("chat.untitled")}</span>
                {c.match ? <span class="entry-match">{c.match}</span> : null}
            </a>
            <details class="menu" ref={menu}>
                <summary aria-label={t("side.more", { title: c.title })} class="icon-button"><Icon name="more" /></summary>
                <div class="menu-list" role="group" aria-label={t("side.more", { title: c.title })}>
                    <button type="button" onClick={act(() => setRenaming(true))}><Icon name="edit" />{t("side.rename")}</button>
                    <button type="button" onClick={act(() => void update(c.id, { pinned: !c.pinned }))}><Icon name="pin" />{c.pinned ? t("side.unpin") : t("side.pin")}</button>
                    <button type="button" onClick={act(() => void download(c, "json"))}><Icon name="download" />{t("side.json")}</button>
                    <button type="button" onClick={act(() => void download(c, "md"))}><Icon name="download" />{t("side.markdown")}</button>
                    <button type="button" class="danger" onClick={act(() => void removeConversation(c.id))}><Icon name="trash" />{t("side.delete")}</button>
                </div>
            </details>
        </div>
    );
}

// The sidebar may be hidden: it takes the focus once it is drawn.
export function showSearch(): void {
    change({ sidebar: true });
    drawer.value = matchMedia("(max-width: 800px)").matches;
    const focus = () => document.getElementById("search")?.focus();
    focus();
    requestAnimationFrame(focus);
}

export function Sidebar({ leave }: { leave: () => void }) {
    const timer = useRef(0);
    const search = (text: string) => {
        searchText.value = text;
        clearTimeout(timer.current);
        timer.current = window.setTimeout(() => void loadConversations().catch(() => {}), 200);
    };
    let last: Word | null = null;
    return (
        <nav class="sidebar" aria-label={t("side")}>
            <div class="brand">
                <img src="/studio/icon.svg" alt="" width="26" height="26" />
                <span>Chimère</span>
            </div>
            <button type="button" class="button new" onClick={() => { startNew(); leave(); }}>
                <Icon name="plus" />
                {t("chat.new")}
            </button>
            <label class="search">
                <Icon name="search" />
                <span class="offscreen">{t("side.search")}</span>
                <input id="search" type="search" placeholder={t("side.search")} value={searchText.value} onInput={(e) => search(e.currentTarget.value)} />
            </label>
            <div class="entries">
                {conversations.value.map((c) => {
                    const g = group(c);
                    const head = g !== last ? <h2 class="group">{t(g)}</h2> : null;
                    last = g;
                    return (
                        <div key={c.id}>
                            {head}
                            <Entry c={c} leave={leave} />
                        </div>
                    );
                })}
                {conversations.value.length ? null : <p class="quiet centre">{searchText.value ? t("side.none") : t("side.empty")}</p>}
                {moreConversations.value ? <button type="button" class="button" onClick={() => void loadConversations(true)}>{t("side.further")}</button> : null}
            </div>
            <ul class="screens">
                {screens.map((s) => (
                    <li key={s.name}>
                        <a href={s.name === "chat" ? (current.value ? `#/c/${current.value.id}` : "#/") : `#/${s.name}`} aria-current={route.value.screen === s.name ? "page" : undefined} onClick={leave}>
                            <Icon name={s.icon} />
                            {t(`screen.${s.name}` as Word)}
                        </a>
                    </li>
                ))}
                <li>
                    <button type="button" onClick={() => (settingsOpen.value = true)}><Icon name="gear" />{t("settings")}</button>
                </li>
            </ul>
        </nav>
    );
}
