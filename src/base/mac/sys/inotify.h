/* inotify.h: as on Windows, folders are not watched. */
#ifndef CHIMERE_BASE_MAC_SYS_INOTIFY_H
#define CHIMERE_BASE_MAC_SYS_INOTIFY_H

#include "base/win/sys/inotify.h"

#endif
