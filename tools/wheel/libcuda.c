// What ggml-cuda takes from a driver (libcuda.so.1), to link with where there is none. As on a machine without a GPU.
#define NO_DEVICE 100

#define CALL(name)                                                                                                     \
    int name(void) {                                                                                                   \
        return NO_DEVICE;                                                                                              \
    }

int cuDriverGetVersion(int * version) {
    *version = 13000;
    return 0;
}

CALL(cuDeviceGet)
CALL(cuDeviceGetAttribute)
CALL(cuGetErrorString)
CALL(cuMemAddressFree)
CALL(cuMemAddressReserve)
CALL(cuMemCreate)
CALL(cuMemGetAllocationGranularity)
CALL(cuMemMap)
CALL(cuMemRelease)
CALL(cuMemSetAccess)
CALL(cuMemUnmap)
