#include "base/caps.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"

/* libc has no wrapper for these calls, and they do not justify libcap. */
static int get(struct __user_cap_data_struct data[2])
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return syscall(SYS_capget, &header, data) < 0 ? -errno : 0;
}

static int set(struct hf_caps caps)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = {
		{ .effective = (uint32_t)caps.effective, .permitted = (uint32_t)caps.permitted },
		{ .effective = (uint32_t)(caps.effective >> 32),
		  .permitted = (uint32_t)(caps.permitted >> 32) },
	};

	return syscall(SYS_capset, &header, data) < 0 ? hf_trace(-errno) : 0;
}

struct hf_caps hf_caps_get(void)
{
	struct __user_cap_data_struct data[2] = { 0 };

	if (get(data) < 0)
		return (struct hf_caps){ 0 };
	return (struct hf_caps){
		.effective = (uint64_t)data[1].effective << 32 | data[0].effective,
		.permitted = (uint64_t)data[1].permitted << 32 | data[0].permitted,
	};
}

int hf_caps_limit(struct hf_caps caps)
{
	struct hf_caps now = hf_caps_get();

	caps.permitted &= now.permitted;
	caps.effective &= caps.permitted;
	return set(caps);
}

bool hf_caps_raise(int cap)
{
	struct hf_caps caps = hf_caps_get();

	if (caps.effective & HF_CAP(cap) || !(caps.permitted & HF_CAP(cap)))
		return false;
	caps.effective |= HF_CAP(cap);
	return set(caps) == 0;
}

void hf_caps_lower(int cap)
{
	struct hf_caps caps = hf_caps_get();

	caps.effective &= ~HF_CAP(cap);
	set(caps); /* removing capabilities is always allowed */
}
