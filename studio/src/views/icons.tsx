// icons.tsx: strokes of 24 by 24; each is decoration, the button that holds it has the name.
const paths = {
    plus: "M12 5v14M5 12h14",
    send: "M12 19V5M6 11l6-6 6 6",
    stop: "M7 7h10v10H7z",
    search: "M11 4a7 7 0 1 1 0 14 7 7 0 0 1 0-14zM20 20l-4-4",
    menu: "M4 7h16M4 12h16M4 17h16",
    chat: "M5 5h14v11H10l-5 4z",
    book: "M5 5a2 2 0 0 1 2-2h12v16H7a2 2 0 0 0-2 2zM5 19V5",
    cube: "M12 3l8 4.500v9L12 21l-8-4.500v-9zM4 7.500l8 4.500 8-4.500M12 12v9",
    pulse: "M3 12h4l3-7 4 14 3-7h4",
    flow: "M6 4v8a4 4 0 0 0 4 4h8M14 12l4 4-4 4M6 4h0",
    key: "M15 4a5 5 0 1 1-4.500 7.200L4 17.700V20h3v-2h2v-2l1.800-1.800A5 5 0 0 1 15 4z",
    gear: "M12 9a3 3 0 1 1 0 6 3 3 0 0 1 0-6zM19 12l2-1-1-3-2 .3-1.500-1.500.3-2-3-1-1 2h-1.600l-1-2-3 1 .3 2L6 8.300 4 8l-1 3 2 1v0l-2 1 1 3 2-.3 1.500 1.500-.3 2 3 1 1-2h1.600l1 2 3-1-.3-2 1.500-1.500 2 .3 1-3z",
    copy: "M9 9h11v11H9zM5 15H4V4h11v1",
    edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
    redo: "M20 11a8 8 0 1 0-2.300 6.300M20 4v7h-7",
    up: "M7 11v9H4v-9zM7 11l4-8c1.500 0 2.500 1 2.500 2.500V9H19a1.500 1.500 0 0 1 1.500 1.800l-1.300 7.500A2 2 0 0 1 17.200 20H7",
    down: "M17 13V4h3v9zM17 13l-4 8c-1.500 0-2.500-1-2.500-2.500V15H5a1.500 1.500 0 0 1-1.500-1.800l1.300-7.500A2 2 0 0 1 6.800 4H17",
    left: "M15 5l-7 7 7 7",
    right: "M9 5l7 7-7 7",
    trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
    pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
    clip: "M20 11l-8.500 8.500a5 5 0 0 1-7-7L13 4a3.500 3.500 0 0 1 5 5l-8.500 8.500a2 2 0 0 1-3-3L14 7",
    close: "M6 6l12 12M18 6L6 18",
    more: "M6 12h.01M12 12h.01M18 12h.01",
    tool: "M14 6a4 4 0 0 0 5 5l-8 8a2.800 2.800 0 0 1-4-4l8-8zM14 6l3-3",
    spark: "M12 4v4M12 16v4M4 12h4M16 12h4M7 7l2 2M15 15l2 2M17 7l-2 2M9 15l-2 2",
    play: "M8 5l11 7-11 7z",
    moon: "M20 14A8 8 0 0 1 10 4a8 8 0 1 0 10 10z",
    sliders: "M5 7h8M17 7h2M15 5v4M5 17h2M11 17h8M9 15v4M5 12h3M12 12h7",
    download: "M12 4v11M7 11l5 5 5-5M5 20h14",
    speaker: "M4 9v6h4l5 4V5L8 9zM16 9.500a4 4 0 0 1 0 5M18.500 7a8 8 0 0 1 0 10",
    layers: "M12 4l8 4-8 4-8-4zM4 12l8 4 8-4M4 16l8 4 8-4",
    branch: "M7 5v14M7 9h6a4 4 0 0 1 4 4v6",
    mic: "M12 4a3 3 0 0 1 3 3v5a3 3 0 0 1-6 0V7a3 3 0 0 1 3-3zM6 12a6 6 0 0 0 12 0M12 18v3",
};
export type IconName = keyof typeof paths;

export function Icon({ name }: { name: IconName }) {
    return (
        <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
            <path d={paths[name]} />
        </svg>
    );
}

interface ButtonProps {
    icon: IconName;
    name: string;
    act: (e: MouseEvent) => void;
    pressed?: boolean;
    expanded?: boolean;
    disabled?: boolean;
    kind?: string;
}
export function IconButton({ icon, name, act, pressed, expanded, disabled, kind }: ButtonProps) {
    return (
        <button type="button" class={`icon-button ${kind ?? ""}`} aria-label={name} title={name} aria-pressed={pressed} aria-expanded={expanded} disabled={disabled} onClick={act}>
            <Icon name={icon} />
        </button>
    );
}
