/* Pictures for the encoder of libnvidia-encode in software: memory of its own, and memory of the client's. */
#include "soft_nvenc.h"

#include <stdlib.h>

static size_t bytes_of(const Surface *surface) { return (size_t)surface->pitch * surface->height * 3 / 2; }
static int is_known(unsigned format) { return format == NV12 || format == YV12 || format == P010; }

int soft_create_input(Session *session, InputParams *params) {
    IN_SESSION("nvEncCreateInputBuffer", session);
    VERSION(session, params, 2, 0);
    if (!is_known(params->format)) return NV_INVALID_PARAM;
    Surface made = {.width = params->width, .height = params->height, .format = params->format};
    made.pitch = (params->width * (params->format == P010 ? 2 : 1) + 511) / 512 * 512;
    if (!(made.memory = soft_allocate(bytes_of(&made)))) return NV_OUT_OF_MEMORY;
    Surface *surface = params->made = malloc(sizeof *surface);
    *surface = made;
    return SUCCESS;
}
int soft_destroy_input(Session *session, Surface *surface) {
    IN_SESSION("nvEncDestroyInputBuffer", session);
    if (!surface) return NV_INVALID_PARAM;
    soft_release((void *)surface->memory);
    free(surface);
    return SUCCESS;
}
int soft_lock_input(Session *session, LockInputParams *params) {
    IN_SESSION("nvEncLockInputBuffer", session);
    VERSION(session, params, 1, 0);
    Surface *surface = params->input;
    surface->is_locked = 1;
    params->data = (void *)surface->memory;
    params->pitch = surface->pitch;
    return SUCCESS;
}
int soft_unlock_input(Session *session, Surface *surface) {
    IN_SESSION("nvEncUnlockInputBuffer", session);
    surface->is_locked = 0;
    return SUCCESS;
}

int soft_register(Session *session, RegisterParams *params) {
    IN_SESSION("nvEncRegisterResource", session);
    VERSION(session, params, 5, 0);
    if (params->type != 1 || params->usage || !is_known(params->format) || params->pitch % 4) return NV_INVALID_PARAM;
    Surface made = {params->memory, params->width, params->height, params->pitch, params->format, .is_registered = 1};
    /* An odd height's last line of chroma is behind the rest, where FFmpeg has none. */
    if (!soft_allocated(made.memory, bytes_of(&made))) {
        soft_complain("what is registered for the encoder is no memory of the device");
        return NV_NOT_REGISTERED;
    }
    Surface *surface = params->made = malloc(sizeof *surface);
    *surface = made;
    soft_count("registered pictures", 1);
    return SUCCESS;
}
int soft_unregister(Session *session, Surface *surface) {
    IN_SESSION("nvEncUnregisterResource", session);
    if (surface->mapped) soft_complain("a picture for the encoder is mapped, and no more registered");
    free(surface);
    soft_count("registered pictures", -1);
    return SUCCESS;
}
int soft_map(Session *session, MapParams *params) {
    IN_SESSION("nvEncMapInputResource", session);
    VERSION(session, params, 4, 0);
    Surface *surface = params->registered;
    if (!surface) return NV_NOT_REGISTERED;
    surface->mapped++;
    params->mapped = surface;
    params->format = surface->format;
    soft_count("mapped pictures", 1);
    return SUCCESS;
}
int soft_unmap(Session *session, Surface *surface) {
    IN_SESSION("nvEncUnmapInputResource", session);
    if (!surface || !surface->mapped) return NV_NOT_MAPPED;
    surface->mapped--;
    soft_count("mapped pictures", -1);
    return SUCCESS;
}
