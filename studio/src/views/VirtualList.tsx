// VirtualList.tsx: of many messages, those in view and a few around them are in the document.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const GUESS = 130; // height of a message that was never shown
const AROUND = 900; // pixels above and below that are rendered too; after a jump in a task of its own
const STEP = 300;
const MOST = 80;

interface Props<T> {
    items: T[];
    name: string;
    resetKey: string;
    children: (item: T) => ComponentChildren;
    id: (item: T) => string;
}

export function VirtualList<T>({ items, name, resetKey, children, id }: Props<T>) {
    const box = useRef<HTMLDivElement>(null);
    const heights = useRef(new Map<string, number>());
    const stick = useRef(true);
    const [, redraw] = useState(0);
    const [view, setView] = useState({ top: 0, height: 800 });
    const [around, setAround] = useState(0);
    useEffect(() => {
        if (around >= AROUND) return undefined;
        const timer = requestAnimationFrame(() => setAround(around + STEP));
        return () => cancelAnimationFrame(timer);
    }, [around]);

    const observer = useRef<ResizeObserver | null>(null);
    observer.current ??= new ResizeObserver((entries) => {
        let changed = false;
        for (const e of entries) {
            const el = e.target as HTMLElement;
            const h = el.offsetHeight;
            if (el.isConnected && heights.current.get(el.dataset.id!) !== h) {
                heights.current.set(el.dataset.id!, h);
                changed = true;
            }
        }
        if (changed) redraw((n) => n + 1);
    });
    useEffect(() => () => observer.current?.disconnect(), []);
    useEffect(() => {
        const el = box.current!;
        const resized = new ResizeObserver(() => setView({ top: el.scrollTop, height: el.clientHeight }));
        resized.observe(el);
        return () => resized.disconnect();
    }, []);

    const tops = new Float64Array(items.length + 1);
    for (let i = 0; i < items.length; i++) tops[i + 1] = tops[i] + (heights.current.get(id(items[i])) ?? GUESS);
    const total = tops[items.length];
    const at = (y: number) => {
        let low = 0;
        let high = items.length;
        while (low < high) {
            const mid = (low + high) >> 1;
            if (tops[mid + 1] < y) low = mid + 1;
            else high = mid;
        }
        return low;
    };
    const top = stick.current ? Math.max(0, total - view.height) : view.top;
    const from = Math.max(0, Math.min(at(top - around), items.length - 1));
    const to = Math.min(items.length, at(top + view.height + around) + 1, from + MOST);

    useLayoutEffect(() => {
        stick.current = true;
        redraw((n) => n + 1);
    }, [resetKey, items.length && id(items[items.length - 1])]); // another conversation, or a message that was just sent
    useLayoutEffect(() => {
        const el = box.current!;
        if (stick.current && el.scrollTop + el.clientHeight < el.scrollHeight - 1) el.scrollTop = el.scrollHeight;
    });
    const onScroll = () => {
        const el = box.current!;
        // The event of our own scrolling comes after the list may have grown again: only a move upwards lets go of the end.
        const atEnd = el.scrollTop + el.clientHeight > el.scrollHeight - 40;
        stick.current = atEnd || (stick.current && el.scrollTop >= view.top);
        if (Math.abs(el.scrollTop - view.top) > el.clientHeight) setAround(0);
        setView({ top: el.scrollTop, height: el.clientHeight });
    };
    return (
        <div class="scroller" ref={box} onScroll={onScroll} tabIndex={0} role="log" aria-live="off" aria-label={name}>
            <div style={{ height: `${tops[from] ?? 0}px` }} />
            {items.slice(from, to).map((item) => (
                <Row key={id(item)} id={id(item)} observer={observer.current!}>
                    {children(item)}
                </Row>
            ))}
            <div style={{ height: `${total - (tops[to] ?? total)}px` }} />
        </div>
    );
}

function Row({ id, observer, children }: { id: string; observer: ResizeObserver; children: ComponentChildren }) {
    const el = useRef<HTMLDivElement>(null);
    useLayoutEffect(() => {
        const node = el.current!;
        observer.observe(node);
        return () => observer.unobserve(node);
    }, []);
    return (
        <div class="row-box" data-id={id} ref={el}>
            {children}
        </div>
    );
}
