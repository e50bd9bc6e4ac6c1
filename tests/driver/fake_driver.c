/* A fake CUDA driver for tests/driver, built as libcuda.so.1: FAKE_* variables of the environment
   determine its results, and it prints each launch. Its functions have the real driver's
   parameters. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int setting(const char* name, int otherwise) {
  const char* value = getenv(name);
  return value ? atoi(value) : otherwise;
}

static __thread void* current; /* context */

int cuDriverGetVersion(int* version) { return *version = setting("FAKE_VERSION", 12080), 0; }
int cuInit(unsigned flags) { return (void)flags, setting("FAKE_INIT", 0); }
int cuDeviceGetCount(int* count) { return *count = setting("FAKE_COUNT", 2), 0; }
int cuDeviceGet(int* device, int ordinal) { return *device = 100 + ordinal, 0; }

int cuGetProcAddress_v2(const char* name, void** address, int version, uint64_t flags,
                        int* status) {
  (void)flags, (void)status;
  const char* missing = getenv("FAKE_MISSING");
  if (version != 12010 || (missing && strcmp(missing, name) == 0)) return 500;
  void* self = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  return (*address = dlsym(self, name)) ? 0 : 500;
}

int cuGetErrorName(int result, const char** name) {
  if (result == 1) return *name = "CUDA_ERROR_INVALID_VALUE", 0;
  if (result == 201) return *name = "CUDA_ERROR_INVALID_CONTEXT", 0;
  if (result == 700) return *name = "CUDA_ERROR_ILLEGAL_ADDRESS", 0;
  if (result == 999) return *name = "CUDA_ERROR_UNKNOWN", 0;
  return *name = NULL, 1;
}
int cuGetErrorString(int result, const char** text) {
  if (result == 1) return *text = "invalid argument", 0;
  if (result == 700) return *text = "an illegal memory access was encountered", 0;
  return *text = NULL, 1;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (device < 100) return 101;
  switch (attribute) {
    case 16:
      *value = 132;
      break;
    case 36:
      *value = setting("FAKE_CLOCK", 3201000);
      break;
    case 37:
      *value = 6144;
      break;
    case 38:
      *value = 62914560;
      break;
    case 39:
      *value = 2048;
      break;
    case 75:
      *value = 9;
      break;
    case 76:
      *value = 0;
      break;
    case 81:
      *value = 233472;
      break;
    case 82:
      *value = 65536;
      break;
    case 95:
      *value = 1;
      break;
    case 97:
      *value = 232448;
      break;
    case 106:
      *value = 32;
      break;
    case 120:
      *value = setting("FAKE_CLUSTERS", 1);
      break;
    default:
      return 1;
  }
  return 0;
}
int cuDeviceGetName(char* name, int size, int device) {
  snprintf(name, size, "NVIDIA Fake %d", device - 100);
  return 0;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  printf("retain %d\n", device);
  return *context = (void*)(intptr_t)(device * 16), 0;
}
int cuCtxGetCurrent(void** context) { return *context = current, 0; }
int cuCtxSetCurrent(void* context) { return current = context, 0; }
int cuCtxPushCurrent(void* context) { return current = context, 0; }
int cuCtxPopCurrent(void** context) { return *context = current, current = NULL, 0; }

int cuLibraryLoadData(void** library, const void* image, int* jit, void** jit_values,
                      unsigned jit_count, int* options, void** values, unsigned count) {
  (void)jit, (void)jit_values, (void)options, (void)values;
  if (jit_count || count || 
      (memcmp(image, "image", 5) && (memcmp(image, ".version", 8) || !setting("FAKE_PTX", 1))))
    return 1;
  return *library = (void*)7, 0;
}
int cuLibraryUnload(void* library) { return printf("unload %d\n", (int)(intptr_t)library), 0; }
int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  return *kernel = (void*)8, library == (void*)7 && (!strcmp(name, "k") || !strcmp(name, "nothing")) ? 0 : 1;
}
int cuKernelGetFunction(void** function, void* kernel) {
  return *function = (void*)9, kernel == (void*)8 && current != NULL ? 0 : 201;
}
int cuKernelSetAttribute(int attribute, int value, void* kernel, int device) {
  printf("attribute %d = %d on %d\n", attribute, value, device);
  return kernel == (void*)8 && value <= 232448 ? 0 : 1;
}
int cuFuncGetAttribute(int* value, int attribute, void* function) {
  static const int answers[] = {1024, 512, 0, 16, 40, 0, 0, 0, 48640};
  return *value = answers[attribute], function == (void*)9 ? 0 : 1;
}

typedef struct {
  uint32_t id;
  char pad[4];
  union {
    char bytes[64];
    uint32_t words[16];
  } value;
} Attribute;

typedef struct {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
  void* stream;
  Attribute* attributes;
  unsigned count;
} Config;

int cuLaunchKernelEx(const Config* c, void* function, void** parameters, void** extra) {
  if (setting("FAKE_LAUNCH", 0)) return setting("FAKE_LAUNCH", 0);
  if (current == NULL) return 201;
  if (function != (void*)9 || extra != NULL) return 1;
  printf("launch in %d: %u,%u,%u x %u,%u,%u shared %u stream %d", (int)(intptr_t)current, c->grid_x,
         c->grid_y, c->grid_z, c->block_x, c->block_y, c->block_z, c->shared,
         (int)(intptr_t)c->stream);
  for (unsigned i = 0; i < c->count; ++i)
    printf(" [%u: %u %u %u]", c->attributes[i].id, c->attributes[i].value.words[0],
           c->attributes[i].value.words[1], c->attributes[i].value.words[2]);
  printf(" arguments %d %g\n", *(int*)parameters[0], *(double*)parameters[1]);
  return 0;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function, int threads,
                                                size_t shared) {
  return *blocks = 2048 / threads - (shared != 0), function == (void*)9 && current != NULL ? 0 : 1;
}
/* Clusters on 124 SMs; the config is as in cuLaunchKernelEx. */
int cuOccupancyMaxActiveClusters(int* clusters, void* function, const Config* config) {
  return *clusters = 124 / config->attributes[0].value.words[0], function == (void*)9 ? 0 : 1;
}
int cuStreamGetId(void* stream, unsigned long long* id) { return *id = 1000 + (intptr_t)stream, 0; }
static __thread int capture_mode = 0;
/* Out of memory if FAKE_ROOM is 0. */
int cuMemAlloc(uint64_t* address, size_t bytes) {
  printf("memory %d in %d mode %d\n", (int)bytes, (int)(intptr_t)current, capture_mode);
  return *address = 77000, setting("FAKE_ROOM", 1) ? 0 : 2;
}
int cuMemsetD32Async(uint64_t address, unsigned value, size_t count, void* stream) {
  if (setting("FAKE_MEMSET", 0)) return setting("FAKE_MEMSET", 0);
  printf("set %u x %d at %d on stream %d in %d\n", value, (int)count, (int)address,
         (int)(intptr_t)stream, (int)(intptr_t)current);
  return current != NULL ? 0 : 201;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  int before = capture_mode;
  capture_mode = *mode;
  return *mode = before, 0;
}
int cuStreamIsCapturing(void* stream, int* status) { return *status = stream == (void*)5, 0; }
