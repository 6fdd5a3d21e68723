#include "daemon/manager.h"

#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "loop/loop.h"

#define STATUS_NS (5 * HF_NS_PER_S) /* how long the line of status may be out of date */

static void tell_status(struct hf_manager *manager)
{
	char now[HF_MANAGER_STATUS] = "";

	manager->status(manager->user, now);
	if (strcmp(now, manager->told) == 0)
		return;
	memcpy(manager->told, now, sizeof(now));
	sd_notifyf(0, "STATUS=%s", now);
}

/* The manager kills a process that is silent for longer than it wants. Two signs in that time leave room for
 * one that is late. */
static void wait_for_next(struct hf_manager *manager)
{
	uint64_t period = manager->watchdog_ns ? HF_MIN(manager->watchdog_ns / 2, STATUS_NS) : STATUS_NS;

	(void)hf_timer_start(&manager->timer, period);
}

static void on_time(struct hf_timer *timer)
{
	struct hf_manager *manager = hf_container_of(timer, struct hf_manager, timer);

	if (manager->watchdog_ns)
		sd_notify(0, "WATCHDOG=1");
	tell_status(manager);
	wait_for_next(manager);
}

void hf_manager_init(struct hf_manager *manager, struct hf_loop *loop, hf_manager_status_fn status,
		     void *user)
{
	uint64_t usec = 0;

	*manager = (struct hf_manager){ .status = status, .user = user };
	hf_timer_init(&manager->timer, loop, on_time);
	if (sd_watchdog_enabled(0, &usec) > 0)
		manager->watchdog_ns = usec * 1000;
}

void hf_manager_deinit(struct hf_manager *manager)
{
	if (manager->status)
		hf_timer_stop(&manager->timer);
	manager->status = NULL;
}

void hf_manager_tell_ready(struct hf_manager *manager)
{
	if (!getenv("NOTIFY_SOCKET"))
		return;
	manager->status(manager->user, manager->told);
	sd_notifyf(0, "READY=1\nSTATUS=%s\nMAINPID=%ld", manager->told, (long)getpid());
	wait_for_next(manager);
}

void hf_manager_tell_reloading(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu",
		   (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000);
}

void hf_manager_tell_stopping(void)
{
	sd_notify(0, "STOPPING=1\nSTATUS=stopping");
}
