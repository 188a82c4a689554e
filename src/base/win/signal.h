/* signal.h: of mingw-w64, and waiting for Ctrl-C, Ctrl-Break and the end of the console as for signals. */
#ifndef CHIMERE_BASE_WIN_SIGNAL_H
#define CHIMERE_BASE_WIN_SIGNAL_H

#include_next <signal.h>

enum { SIGHUP = 1, SIGUSR1 = 10, SIGPIPE = 13, SIG_BLOCK = 0, SIG_UNBLOCK = 1, SIG_SETMASK = 2 };
typedef unsigned win_sigset;
#define sigset_t win_sigset
struct sigaction {
    void (*sa_handler)(int);
};

int sigemptyset(sigset_t *set);
int sigaddset(sigset_t *set, int number);
int sigaction(int number, const struct sigaction *act, struct sigaction *old);
/* Ctrl-C of a blocked SIGINT is kept for sigwait. */
int win_sigmask(int how, const sigset_t *set, sigset_t *old);
int sigwait(const sigset_t *set, int *got);
#undef pthread_sigmask
#define pthread_sigmask win_sigmask
/* Ends a sigwait, of whatever thread. pthread.h, which includes this file first, declares it. */
#undef pthread_kill
#define pthread_kill win_kill

#endif
