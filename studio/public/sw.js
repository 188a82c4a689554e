// The page opens while the server is down, with what it had; everything else goes to the network.
const name = "studio-1";
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (e) => e.waitUntil(self.clients.claim()));
self.addEventListener("fetch", (e) => {
    const url = new URL(e.request.url);
    if (e.request.method !== "GET" || url.origin !== self.location.origin) return;
    if (url.pathname.startsWith("/studio/assets/")) {
        e.respondWith(caches.open(name).then(async (cache) => {
            const kept = await cache.match(e.request);
            if (kept) return kept;
            const got = await fetch(e.request);
            if (got.ok) await cache.put(e.request, got.clone());
            return got;
        }));
    } else if ((e.request.mode === "navigate" && url.pathname === "/") || url.pathname === "/studio/icon.svg") {
        e.respondWith(fetch(e.request).then(async (got) => {
            if (got.ok) await (await caches.open(name)).put(url.pathname, got.clone());
            return got;
        }).catch(async () => (await (await caches.open(name)).match(url.pathname)) ?? Response.error()));
    }
});
