/* topology_impl.h: shared by the files of topology.h. */
#ifndef CHIMERE_BASE_OS_TOPOLOGY_IMPL_H
#define CHIMERE_BASE_OS_TOPOLOGY_IMPL_H

struct topology;

int topology_choose(const struct topology *t); /* the number of threads, from the other fields */

#endif
