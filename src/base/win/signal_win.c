/* signal_win.c: signal.h. The handler of the console runs in a thread that Windows makes; it keeps the program alive until
 * the waiting thread has ended it, because Windows kills a program whose handler returns. */
#include <signal.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <windows.h>

static HANDLE event;
static _Atomic int pending;

static BOOL WINAPI on_console(DWORD what) {
    bool closing =
        what == CTRL_CLOSE_EVENT || what == CTRL_LOGOFF_EVENT || what == CTRL_SHUTDOWN_EVENT;
    atomic_store(&pending, closing ? SIGTERM : SIGINT);
    SetEvent(event);
    if (closing) Sleep(INFINITE);
    return TRUE;
}

int sigemptyset(sigset_t *set) { return *set = 0, 0; }

int sigaddset(sigset_t *set, int number) { return *set |= 1u << number, 0; }

int sigaction(int number, const struct sigaction *act, struct sigaction *old) {
    void (*before)(int) = signal(number, act->sa_handler);
    if (old) old->sa_handler = before;
    return before == SIG_ERR ? -1 : 0;
}

int win_sigmask(int how, const sigset_t *set, sigset_t *old) {
    if (old) *old = 0;
    if (how != SIG_BLOCK || !(*set & 1u << SIGINT) || event) return 0;
    event = CreateEventW(NULL, FALSE, FALSE, NULL);
    SetConsoleCtrlHandler(on_console, TRUE);
    return 0;
}

int pthread_kill(pthread_t thread, int number) {
    (void)thread;
    atomic_store(&pending, number);
    return SetEvent(event) ? 0 : -1;
}

int sigwait(const sigset_t *set, int *got) {
    (void)set;
    while (!(*got = atomic_exchange(&pending, 0))) WaitForSingleObject(event, INFINITE);
    return 0;
}
