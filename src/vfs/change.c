#include "vfs/change.h"

_Atomic uint64_t hf_change_counts[1 << HF_CHANGE_COUNTS_BITS];
