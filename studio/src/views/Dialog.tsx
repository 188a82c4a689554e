// Dialog.tsx: a modal of the browser's own: it traps the focus, gives it back, and closes on Escape.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { t } from "../i18n";
import { IconButton } from "./icons";

export function Dialog({ title, close, children, kind }: { title: string; close: () => void; children: ComponentChildren; kind?: string }) {
    const ref = useRef<HTMLDialogElement>(null);
    // before the next key event, which must reach the dialog: an effect after the paint would come too late
    useLayoutEffect(() => {
        const dialog = ref.current!;
        const before = document.activeElement as HTMLElement | null;
        if (!dialog.open) dialog.showModal();
        return () => {
            dialog.close();
            before?.focus?.();
        };
    }, []);
    return (
        <dialog
            ref={ref}
            class={kind}
            aria-label={title}
            onCancel={(e) => {
                e.preventDefault();
                close();
            }}
            onClick={(e) => {
                if (e.target === ref.current) close();
            }}
        >
            <div class="dialog-body">
                {kind === "palette" ? null : (
                    <header class="dialog-head">
                        <h2>{title}</h2>
                        <IconButton icon="close" name={t("close")} act={close} />
                    </header>
                )}
                {children}
            </div>
        </dialog>
    );
}
