/* libnvidia-ml.so.1 that answers what a recording says, so that nvidia-ml-py itself is tested.
 *
 * NVML_RECORDING=DIR   nvml-static.json, and samples.jsonl.gz where there is one: power and energy
 *                      follow the samples in real time from the first call on, again and again.
 * NVML_CARDS=N         as many copies of the card, with other UUIDs and addresses (default 1)
 * NVML_STATE=FILE      limits and locked clocks that were set, one line a card; shared by processes
 * NVML_XIDS=FILE       lines "INDEX XID": each is delivered once, in order
 * NVML_LOST=INDEX      this card has fallen off the bus
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
       SMALL = 7, TIMED_OUT = 10, LOST = 15, UNKNOWN = 999 };
#define MOST_CARDS 64
#define MOST_SAMPLES 100000

typedef struct { int index; } Device;
static Device devices[MOST_CARDS];
static char *recording;
static int cards = 1, samples, xids_given;
static struct { double at, mw, mj; } sample[MOST_SAMPLES];
static struct timespec began;

/* The value of a key of the object that begins at `object`; NULL if it has none. */
static const char *member(const char *object, const char *key) {
    if (!object || *object != '{') return NULL;
    int depth = 0;
    size_t length = strlen(key);
    for (const char *at = object; *at; at++) {
        if (*at == '"') {
            const char *start = at + 1;
            for (at = start; *at && *at != '"'; at++)
                if (*at == '\\') at++;
            if (depth == 1 && (size_t)(at - start) == length && !memcmp(start, key, length)) {
                for (at++; *at == ' ' || *at == ':' || *at == '\n'; at++);
                return at;
            }
        } else if (*at == '{' || *at == '[') depth++;
        else if ((*at == '}' || *at == ']') && --depth == 0) return NULL;
    }
    return NULL;
}

static const char *element(const char *array, int number) {
    if (!array || *array != '[') return NULL;
    const char *at = array + 1;
    while (number-- && at) if ((at = strchr(at, ','))) at++;
    return at;
}

/* The error that the recording has for this answer; SUCCESS for a value. */
static int error_of(const char *value) {
    if (!value) return NOT_SUPPORTED;
    const char *code = member(value, "code");
    if (code) return atoi(code);
    return member(value, "exception") ? NOT_SUPPORTED : SUCCESS;
}

static int number(const char *value, unsigned long long *into) {
    int error = error_of(value);
    if (!error) *into = strtoull(value, NULL, 10);
    return error;
}

static int word(const char *value, char *into, unsigned length) {
    int error = error_of(value);
    if (error) return error;
    const char *end = *value == '"' ? strchr(value + 1, '"') : NULL;
    if (!end || (unsigned)(end - value) > length) return SMALL;
    memcpy(into, value + 1, end - value - 1);
    into[end - value - 1] = 0;
    return SUCCESS;
}

static int is_lost(const Device *device) {
    const char *lost = getenv("NVML_LOST");
    return lost && *lost && atoi(lost) == device->index;
}

static int answer(Device *device, const char *name, unsigned *into) {
    unsigned long long value;
    if (is_lost(device)) return LOST;
    int error = number(member(recording, name), &value);
    if (!error) *into = (unsigned)value;
    return error;
}

static void read_samples(const char *folder) {
    char command[4200], line[65536];
    snprintf(command, sizeof command, "gzip -dc '%s/samples.jsonl.gz' 2>/dev/null", folder);
    FILE *pipe = popen(command, "r");
    while (pipe && samples < MOST_SAMPLES && fgets(line, sizeof line, pipe)) {
        const char *t = member(line, "t"), *mw = member(line, "power_mw"),
                   *mj = member(line, "energy_mj");
        if (!t || !mw || !mj) continue;
        sample[samples].at = atof(t);
        sample[samples].mw = atof(mw);
        sample[samples++].mj = atof(mj);
    }
    if (pipe) pclose(pipe);
}

/* Power and energy now; the energy goes on from round to round. */
static int now(double *mw, double *mj) {
    if (!samples) return 0;
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    double passed = (time.tv_sec - began.tv_sec) + (time.tv_nsec - began.tv_nsec) / 1e9;
    double whole = sample[samples - 1].at + 0.1, per_round = sample[samples - 1].mj - sample[0].mj;
    double rounds = (double)(long long)(passed / whole), at = passed - rounds * whole;
    int low = 0, high = samples - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (sample[middle].at <= at) low = middle; else high = middle - 1;
    }
    *mw = sample[low].mw;
    *mj = sample[low].mj + rounds * per_round;
    return 1;
}

/* What was set: the limit in mW and the locked clocks of one card; 0 where nothing was set. */
static unsigned state[MOST_CARDS][3];
static void load_state(void) {
    memset(state, 0, sizeof state);
    const char *name = getenv("NVML_STATE");
    FILE *file = name ? fopen(name, "r") : NULL;
    unsigned index, limit, low, high;
    while (file && fscanf(file, "%u %u %u %u", &index, &limit, &low, &high) == 4)
        if (index < MOST_CARDS) state[index][0] = limit, state[index][1] = low, state[index][2] = high;
    if (file) fclose(file);
}
static int save_state(void) {
    const char *name = getenv("NVML_STATE");
    char other[4200];
    if (!name) return NO_PERMISSION;
    snprintf(other, sizeof other, "%s.new", name);
    FILE *file = fopen(other, "w");
    if (!file) return NO_PERMISSION;
    for (int i = 0; i < cards; i++)
        fprintf(file, "%d %u %u %u\n", i, state[i][0], state[i][1], state[i][2]);
    fclose(file);
    return rename(other, name) ? NO_PERMISSION : SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    const char *folder = getenv("NVML_RECORDING"), *count = getenv("NVML_CARDS");
    char name[4200];
    if (recording) return SUCCESS;
    if (!folder) return UNKNOWN;
    snprintf(name, sizeof name, "%s/nvml-static.json", folder);
    FILE *file = fopen(name, "r");
    if (!file) return UNKNOWN;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    recording = calloc(1, size + 1);
    if (fread(recording, 1, size, file) != (size_t)size) return UNKNOWN;
    fclose(file);
    cards = count ? atoi(count) : 1;
    for (int i = 0; i < MOST_CARDS; i++) devices[i].index = i;
    clock_gettime(CLOCK_MONOTONIC, &began);
    read_samples(folder);
    return SUCCESS;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) {
    switch (code) {
    case SUCCESS: return "Success";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}
int nvmlSystemGetDriverVersion(char *into, unsigned length) {
    return word(member(recording, "nvmlSystemGetDriverVersion"), into, length);
}
int nvmlDeviceGetCount_v2(unsigned *count) { *count = cards; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if ((int)index >= cards) return INVALID;
    *device = &devices[index];
    return is_lost(*device) ? LOST : SUCCESS;
}
int nvmlDeviceGetUUID(Device *device, char *into, unsigned length) {
    int error = is_lost(device) ? LOST : word(member(recording, "nvmlDeviceGetUUID"), into, length);
    if (!error && device->index && strlen(into) > 2) {
        char ending[8];
        snprintf(ending, sizeof ending, "%02x", device->index);
        memcpy(into + strlen(into) - 2, ending, 2);
    }
    return error;
}
int nvmlDeviceGetName(Device *device, char *into, unsigned length) {
    return is_lost(device) ? LOST : word(member(recording, "nvmlDeviceGetName"), into, length);
}
int nvmlDeviceGetIndex(Device *device, unsigned *index) { *index = device->index; return SUCCESS; }
int nvmlDeviceGetPowerUsage(Device *device, unsigned *mw) {
    double power, energy;
    if (is_lost(device)) return LOST;
    if (!now(&power, &energy)) return answer(device, "nvmlDeviceGetPowerUsage", mw);
    *mw = (unsigned)power;
    return SUCCESS;
}
int nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *mj) {
    double power, energy;
    if (is_lost(device)) return LOST;
    if (!now(&power, &energy))
        return number(member(recording, "nvmlDeviceGetTotalEnergyConsumption"), mj);
    *mj = (unsigned long long)energy;
    return SUCCESS;
}
int nvmlDeviceGetPowerManagementLimit(Device *device, unsigned *mw) {
    int error = answer(device, "nvmlDeviceGetPowerManagementLimit", mw);
    load_state();
    if (!error && state[device->index][0]) *mw = state[device->index][0];
    return error;
}
int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *mw) {
    return nvmlDeviceGetPowerManagementLimit(device, mw);
}
int nvmlDeviceGetPowerManagementDefaultLimit(Device *device, unsigned *mw) {
    return answer(device, "nvmlDeviceGetPowerManagementDefaultLimit", mw);
}
int nvmlDeviceGetPowerManagementLimitConstraints(Device *device, unsigned *low, unsigned *high) {
    const char *span = member(recording, "nvmlDeviceGetPowerManagementLimitConstraints");
    if (is_lost(device)) return LOST;
    int error = error_of(span);
    if (!error) *low = atoi(element(span, 0)), *high = atoi(element(span, 1));
    return error;
}
int nvmlDeviceSetPowerManagementLimit(Device *device, unsigned mw) {
    unsigned low = 0, high = 0;
    int error = nvmlDeviceGetPowerManagementLimitConstraints(device, &low, &high);
    if (error) return error;
    if (mw < low || mw > high) return INVALID;
    load_state();
    state[device->index][0] = mw;
    return save_state();
}
int nvmlDeviceSetGpuLockedClocks(Device *device, unsigned low, unsigned high) {
    if (is_lost(device)) return LOST;
    load_state();
    state[device->index][1] = low;
    state[device->index][2] = high;
    return save_state();
}
int nvmlDeviceResetGpuLockedClocks(Device *device) {
    return nvmlDeviceSetGpuLockedClocks(device, 0, 0);
}
/* In steps of 15 MHz from 210 MHz up to the highest clock, as recorded cards have them. */
int nvmlDeviceGetSupportedGraphicsClocks(Device *device, unsigned memory, unsigned *count,
                                         unsigned *clocks) {
    unsigned highest = 0, room = *count;
    int error = memory ? answer(device, "maxclock0", &highest) : INVALID;
    if (error) return error;
    *count = highest < 210 ? 0 : (highest - 210) / 15 + 1;
    if (!clocks || room < *count) return SMALL;
    for (unsigned i = 0; i < *count; i++) clocks[i] = 210 + 15 * (*count - 1 - i);
    return SUCCESS;
}
int nvmlDeviceGetSupportedMemoryClocks(Device *device, unsigned *count, unsigned *clocks) {
    const char *found = member(recording, "nvmlDeviceGetSupportedMemoryClocks");
    unsigned room = *count;
    if (is_lost(device)) return LOST;
    int error = error_of(found);
    if (error) return error;
    *count = 0;
    for (const char *at = found; at && *at != ']'; at = strpbrk(at + 1, ",]")) ++*count;
    if (!clocks || room < *count) return SMALL;
    for (unsigned i = 0; i < *count; i++) clocks[i] = atoi(element(found, i));
    return SUCCESS;
}
int nvmlDeviceGetMaxClockInfo(Device *device, unsigned type, unsigned *mhz) {
    char name[16];
    snprintf(name, sizeof name, "maxclock%u", type);
    return answer(device, name, mhz);
}
int nvmlDeviceGetClockInfo(Device *device, unsigned type, unsigned *mhz) {
    char name[16];
    snprintf(name, sizeof name, "clock%u", type);
    int error = answer(device, name, mhz);
    load_state();
    if (!error && !type && state[device->index][2] && *mhz > state[device->index][2])
        *mhz = state[device->index][2];
    return error;
}
int nvmlDeviceGetMemoryInfo(Device *device, unsigned long long *into) {
    const char *memory = member(recording, "nvmlDeviceGetMemoryInfo");
    if (is_lost(device)) return LOST;
    int error = error_of(memory);
    if (error) return error;
    const char *names[] = {"total", "free", "used"};
    for (int i = 0; i < 3; i++) number(member(memory, names[i]), &into[i]);
    return SUCCESS;
}
typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char address[32];
} Pci;
int nvmlDeviceGetPciInfo_v3(Device *device, Pci *into) {
    const char *pci = member(recording, "nvmlDeviceGetPciInfo");
    if (is_lost(device)) return LOST;
    int error = error_of(pci);
    if (error) return error;
    memset(into, 0, sizeof *into);
    word(member(pci, "busIdLegacy"), into->legacy, sizeof into->legacy);
    word(member(pci, "busId"), into->address, sizeof into->address);
    if (device->index) {
        char slot[3];
        snprintf(slot, sizeof slot, "%02x", device->index);
        if (strlen(into->address) > 12) memcpy(into->address + 9, slot, 2);
    }
    return SUCCESS;
}
int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    const char *mode = member(recording, "nvmlDeviceGetMigMode");
    if (is_lost(device)) return LOST;
    int error = error_of(mode);
    if (!error) *current = atoi(element(mode, 0)), *pending = atoi(element(mode, 1));
    return error;
}
int nvmlDeviceGetNumaNodeId(Device *device, unsigned *node) {
    return answer(device, "nvmlDeviceGetNumaNodeId", node);
}
int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, void *into) {
    (void)into;
    *count = 0;
    return is_lost(device) ? LOST : SUCCESS;
}
int nvmlDeviceGetUtilizationRates(Device *device, unsigned *into) {
    const char *rates = member(recording, "nvmlDeviceGetUtilizationRates");
    if (is_lost(device)) return LOST;
    int error = error_of(rates);
    if (!error) into[0] = atoi(member(rates, "gpu")), into[1] = atoi(member(rates, "memory"));
    return error;
}
int nvmlDeviceGetTemperature(Device *device, unsigned sensor, unsigned *degrees) {
    (void)sensor;
    return answer(device, "temperature", degrees);
}
int nvmlDeviceGetTotalEccErrors(Device *device, unsigned type, unsigned counter,
                                unsigned long long *count) {
    char name[8];
    snprintf(name, sizeof name, "ecc%u%u", type, counter);
    return is_lost(device) ? LOST : number(member(recording, name), count);
}
int nvmlDeviceGetRemappedRows(Device *device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed) {
    const char *rows = member(recording, "nvmlDeviceGetRemappedRows");
    if (is_lost(device)) return LOST;
    int error = error_of(rows);
    unsigned *into[] = {corrected, uncorrected, pending, failed};
    for (int i = 0; !error && i < 4; i++) *into[i] = atoi(element(rows, i));
    return error;
}
int nvmlDeviceGetNvLinkState(Device *device, unsigned link, unsigned *active) {
    char name[16];
    snprintf(name, sizeof name, "nvlink%u", link);
    unsigned long long value;
    if (is_lost(device)) return LOST;
    int error = number(member(member(recording, name), "state"), &value);
    if (!error) *active = (unsigned)value;
    return error;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(Device *device, unsigned link, unsigned *type) {
    char name[16];
    snprintf(name, sizeof name, "nvlink%u", link);
    unsigned long long value;
    if (is_lost(device)) return LOST;
    int error = number(member(member(recording, name), "type"), &value);
    if (!error) *type = (unsigned)value;
    return error;
}
typedef struct {
    unsigned id, scope;
    long long at, took;
    int type, result;
    union { double d; unsigned long long u; } value;
} Field;
static const struct { unsigned id; const char *name; } FIELDS[] = {
    {74, "NVML_FI_DEV_PERF_POLICY_POWER"}, {75, "NVML_FI_DEV_PERF_POLICY_THERMAL"},
    {83, "NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION"}, {185, "NVML_FI_DEV_POWER_AVERAGE"},
    {186, "NVML_FI_DEV_POWER_INSTANT"}, {191, "NVML_FI_DEV_ENERGY"},
    {230, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"},
};
int nvmlDeviceGetFieldValues(Device *device, int count, Field *fields) {
    const char *recorded = member(recording, "fields");
    if (is_lost(device)) return LOST;
    for (int i = 0; i < count; i++) {
        const char *field = NULL;
        for (unsigned j = 0; j < sizeof FIELDS / sizeof *FIELDS; j++)
            if (FIELDS[j].id == fields[i].id) field = member(recorded, FIELDS[j].name);
        fields[i].result = field ? atoi(member(field, "ret")) : NOT_SUPPORTED;
        fields[i].type = field ? atoi(member(field, "type")) : 0;
        fields[i].value.u = field ? strtoull(member(field, "u"), NULL, 10) : 0;
    }
    return SUCCESS;
}
typedef struct { unsigned long long reference, violation; } Violation;
int nvmlDeviceGetViolationStatus(Device *device, unsigned policy, Violation *into) {
    const char *names[] = {"NVML_FI_DEV_PERF_POLICY_POWER", "NVML_FI_DEV_PERF_POLICY_THERMAL"};
    struct timespec time;
    if (is_lost(device)) return LOST;
    if (policy > 1) return NOT_SUPPORTED;
    clock_gettime(CLOCK_REALTIME, &time);
    into->reference = time.tv_sec * 1000000ull + time.tv_nsec / 1000;
    return number(member(member(member(recording, "fields"), names[policy]), "u"), &into->violation);
}
int nvmlEventSetCreate(void **set) { *set = &cards; return SUCCESS; }
int nvmlEventSetFree(void *set) { (void)set; return SUCCESS; }
int nvmlDeviceRegisterEvents(Device *device, unsigned long long types, void *set) {
    (void)types, (void)set;
    return is_lost(device) ? LOST : SUCCESS;
}
typedef struct {
    Device *device;
    unsigned long long type, data;
    unsigned instance, compute;
} Event;
int nvmlEventSetWait_v2(void *set, Event *event, unsigned timeout_ms) {
    (void)set, (void)timeout_ms;
    const char *name = getenv("NVML_XIDS");
    FILE *file = name ? fopen(name, "r") : NULL;
    unsigned index, xid;
    int line = 0, result = TIMED_OUT;
    while (file && fscanf(file, "%u %u", &index, &xid) == 2)
        if (line++ == xids_given && index < MOST_CARDS) {
            xids_given++;
            memset(event, 0, sizeof *event);
            event->device = &devices[index];
            event->type = 8; /* nvmlEventTypeXidCriticalError */
            event->data = xid;
            result = SUCCESS;
            break;
        }
    if (file) fclose(file);
    return result;
}
