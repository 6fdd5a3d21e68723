/* The registrar's log lines about mappings that another program has. */
#include "base/log.h"
#include "proto/portmap/registrar_internal.h"

static const char *advice_for(uint32_t program)
{
	switch (program) {
	case 100003:
		return "another server for this program is registered; stop the kernel's: systemctl stop "
		       "nfs-server";
	case 100005:
		return "another server for this program is registered; stop the kernel's: systemctl stop "
		       "nfs-mountd";
	case 100021:
		return "another server for this program is registered; the kernel's lock service runs: "
		       "unmount "
		       "what this host mounts by NFS, and systemctl stop nfs-server";
	case 100024:
		return "another server for this program is registered; stop rpc.statd: systemctl stop "
		       "rpc-statd";
	default:
		return "another server for this program is registered; stop it";
	}
}

/* One line for each program, for all its versions and transports. */
static bool has_complained(const struct hf_registrar *registrar, uint32_t program)
{
	for (size_t i = 0; i < registrar->n_items; i++) {
		if (registrar->items[i].program == program && registrar->items[i].has_complained)
			return true;
	}
	return false;
}

void hf_registrar_complain(struct hf_registrar *registrar, struct registrar_item *item)
{
	bool is_known = has_complained(registrar, item->program);
	char holder[HF_UADDR_TEXT] = "-";

	registrar->report.n_refused++;
	item->has_complained = true;
	if (is_known)
		return;
	if (item->state == ITEM_TAKEN)
		hf_uaddr_format(&item->holder, holder, sizeof(holder));
	hf_log_error(advice_for(item->program), "program=%u version=%u netid=%s holder=%s owner=%s",
		     item->program, item->version, hf_netid_name(item->netid), holder,
		     item->state == ITEM_TAKEN ? item->holder_owner : "-");
}
