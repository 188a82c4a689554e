/* A stand-in for libnvidia-ml: three devices, of which the second has no energy counter; each read adds 1,500 mJ.
 * As soon as the file FAKE_NVML_JUMP exists, each read adds 1 GJ. */
#include <stdlib.h>
#include <unistd.h>

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules);

static unsigned long long counters[3] = {1000, 0, 5000000};

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) {
    *n = 3;
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device) {
    *device = &counters[i];
    return i < 3 ? 0 : 2;
}
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    unsigned long long *counter = device;
    if (counter == &counters[1]) return 3; /* not supported */
    const char *jump = getenv("FAKE_NVML_JUMP");
    *millijoules = *counter += jump && !access(jump, F_OK) ? 1000000000000 : 1500;
    return 0;
}
