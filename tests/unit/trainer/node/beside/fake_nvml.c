/* A fake of NVIDIA's libnvidia-ml.so.1: two GPUs with fixed numbers. The second does not report its power. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { unsigned gpu, memory; } use_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef uintptr_t device;
#define NOT_SUPPORTED 3
int nvmlInit_v2(void) { return getenv("FAKE_NVML_BROKEN") ? 18 : 0; }
const char *nvmlErrorString(int code) { return code == 18 ? "Driver/library version mismatch" : "Unknown"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *handle) { *handle = 0x7f0000001000 + index; return 0; }
static unsigned of(device handle) { return handle - 0x7f0000001000; }
int nvmlDeviceGetName(device handle, char *text, unsigned size) { snprintf(text, size, "Fake GPU"); return 0; }
int nvmlDeviceGetUUID(device handle, char *text, unsigned size) { snprintf(text, size, "GPU-fake-%u", of(handle)); return 0; }
/* One MIG part of a GPU: of the second one. */
int nvmlDeviceGetHandleByUUID(const char *uuid, device *handle) { *handle = 0x7f0000002000; return strcmp(uuid, "MIG-fake"); }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device part, device *handle) {
    *handle = 0x7f0000001001; return part != 0x7f0000002000;
}
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "1.2.3"); return 0; }
int nvmlDeviceGetUtilizationRates(device handle, use_t *use) { use->gpu = 90 + of(handle); use->memory = 1; return 0; }
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
/* As in nvml.h: nvmlMemory_v2 = sizeof | 2 << 24. The second GPU answers as a driver does that is too old for it. */
int nvmlDeviceGetMemoryInfo_v2(device handle, memory_v2_t *memory) {
    if (of(handle) || memory->version != (sizeof(memory_v2_t) | 2 << 24)) return NOT_SUPPORTED;
    memory->total = 80ull << 30; memory->reserved = 1ull << 30; memory->used = 60ull << 30; memory->free = 19ull << 30;
    return 0;
}
int nvmlDeviceGetMemoryInfo(device handle, memory_t *memory) {
    memory->total = 80ull << 30; memory->used = 61ull << 30; memory->free = 19ull << 30; return 0;
}
int nvmlDeviceGetPowerUsage(device handle, unsigned *milliwatts) {
    if (of(handle)) return NOT_SUPPORTED;
    *milliwatts = 654321; return 0;
}
int nvmlDeviceGetTemperature(device handle, int sensor, unsigned *celsius) { *celsius = sensor == 0 ? 70 : 0; return 0; }
int nvmlDeviceGetClockInfo(device handle, int kind, unsigned *mhz) { *mhz = kind == 1 ? 1980 : kind == 2 ? 2619 : 0; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(device handle, unsigned long long *reasons) { *reasons = 0x1 | 0x40; return 0; }
