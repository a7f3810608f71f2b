/* Maker: as pure.Maker. Fills the slots of a structure at their places, which it looks up once. */

#include "native.h"
#include <structmember.h>

static PyObject *
maker_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names)
{
    Maker *self = (Maker *)callable;
    if (PyVectorcall_NARGS(flags) != Py_SIZE(self) || (names != NULL && PyTuple_GET_SIZE(names) != 0)) {
        PyErr_Format(PyExc_TypeError, "%s needs the values of its %zd fields, in order", self->type->tp_name,
                     Py_SIZE(self));
        return NULL;
    }
    PyObject *made = self->type->tp_alloc(self->type, 0);
    if (made == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        *maker_slot(self, made, i) = Py_NewRef(args[i]);
    }
    return made;
}

static PyObject *
maker_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyTypeObject *structure;
    PyObject *names;
    if (!PyArg_ParseTuple(args, "O!O!:Maker", &PyType_Type, &structure, &PyTuple_Type, &names)) {
        return NULL;
    }
    Maker *self = (Maker *)type->tp_alloc(type, PyTuple_GET_SIZE(names));
    if (self == NULL) {
        return NULL;
    }
    self->call = maker_call;
    self->type = (PyTypeObject *)Py_NewRef((PyObject *)structure);
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        PyObject *slot = PyObject_GetAttr((PyObject *)structure, PyTuple_GET_ITEM(names, i));
        if (slot == NULL) {
            Py_DECREF(self);
            return NULL;
        }
        PyMemberDef *member = Py_IS_TYPE(slot, &PyMemberDescr_Type) ? ((PyMemberDescrObject *)slot)->d_member : NULL;
        /* A slot of the class itself: what a base declares may be of another size. */
        int is_own = member != NULL && member->type == T_OBJECT_EX && PyDescr_TYPE(slot) == structure;
        self->offsets[i] = is_own ? member->offset : 0;
        Py_DECREF(slot);
        if (!is_own) {
            PyErr_Format(PyExc_TypeError, "%s has no slot %R", structure->tp_name, PyTuple_GET_ITEM(names, i));
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

static int
maker_traverse(Maker *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->type);
    return 0;
}

static void
maker_dealloc(Maker *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_CLEAR(self->type);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMemberDef maker_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Maker, call), READONLY, NULL},
    {NULL},
};

static PyType_Slot maker_slots[] = {
    {Py_tp_new, maker_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_dealloc, maker_dealloc},
    {Py_tp_traverse, maker_traverse},
    {Py_tp_members, maker_members},
    {0, NULL},
};

PyType_Spec maker_spec = {
    .name = "aiogroup._core.native._native.Maker",
    .basicsize = offsetof(Maker, offsets),
    .itemsize = sizeof(Py_ssize_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = maker_slots,
};
