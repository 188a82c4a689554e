/* unistd.h: of mingw-w64, and functions of POSIX that it does not declare. */
#ifndef CHIMERE_BASE_WIN_UNISTD_H
#define CHIMERE_BASE_WIN_UNISTD_H

#include_next <unistd.h>

#define read win_read

#endif
